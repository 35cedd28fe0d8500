"""Texts by name: found prepared on the disk, or downloaded from their publishers and cleaned.

One folder holds all files: --data-dir, or else what the environment variable GPTCORE_DATA names,
or else ~/.cache/gptcore/data. A data set is read from the first of these that is there: a prepared
file in it (`chat.jsonl.gz` and so on, whose hashes registry.py has), then the publishers' own files
(`openai.grade-school-math.train.jsonl`), which are downloaded if missing. Without a network, put
the files there yourself.

>>> next(read_dataset("jokes", None))                                  # doctest: +SKIP
[{'role': 'user', 'content': 'Tell me a joke.'}, {'role': 'assistant', 'content': ...}]
"""

import csv
import gzip
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from gptcore.checks import UserError, check_choice
from gptcore.system.files import cache_folder
from training.data.corpus import Document, numbered_lines, read_documents
from training.datasets.cleaning import clean, without_repeats
from training.datasets.download import download, forget, verify
from training.datasets.origins import Origin
from training.datasets.registry import DATASETS, PREPARED

VARIABLE = "GPTCORE_DATA"
UNREADABLE = (
    *(LookupError, TypeError, ValueError, AttributeError, SyntaxError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error, EOFError),
)


def read_dataset(name: str, data_dir: Path | None = None) -> Iterator[Document]:
    """The documents of a data set, streamed, always in the same order.

    UserError if the name is unknown, a file cannot be had, or is not the file that is meant, and
    if there is no document: nobody would notice that a mix lacks them.
    """
    check_choice("dataset", name, DATASETS)
    dataset, folder = DATASETS[name], data_folder(data_dir)
    if dataset.derive:
        documents = read_dataset(dataset.source, data_dir)
        made = (made for document in documents for made in dataset.derive(document))
        return some(made, f"dataset {name}: {dataset.source} has nothing for it: leave it out")
    prepared = folder / dataset.prepared
    if prepared.is_file():
        verify(prepared, PREPARED[dataset.prepared])
        return some(
            read_prepared(name, prepared),
            f"dataset {name}: {prepared} has no document of it: name another --data-dir, or take "
            f"that file out of this one to have the publishers' files read",
        )
    if not dataset.origins:
        raise UserError(
            f"dataset {name} is to be had only in prepared form: name the folder that has "
            f"{dataset.prepared} with --data-dir or {VARIABLE} (it is not in {folder})"
        )
    paths = [obtain(origin, folder) for origin in dataset.origins]
    return without_repeats(
        document
        for origin, path in zip(dataset.origins, paths)
        for document in read_origin(name, origin, path)
    )


def data_folder(data_dir: Path | None) -> Path:
    """Where data is looked for, and downloaded to."""
    named = data_dir or os.environ.get(VARIABLE)
    if named and not Path(named).is_dir():
        source = "--data-dir" if data_dir else VARIABLE
        raise UserError(f"{source} {named} is no folder: make it, or name another")
    return Path(named or cache_folder() / "data")


def obtain(origin: Origin, folder: Path) -> Path:
    """The origin's file in the folder, downloaded if need be, and verified."""
    path = folder / origin.file_name
    try:
        if path.is_file():
            verify(path, origin.sha256)
        else:
            download(origin.url, path, origin.sha256)
    except OSError as error:
        raise UserError(f"{path}: {error}; mend that, or name another --data-dir") from None
    return path


def some(documents: Iterator[Document], complaint: str) -> Iterator[Document]:
    """All of them. UserError if there are none."""
    first = next(documents, None)
    if first is None:
        raise UserError(complaint)
    yield first
    yield from documents


def read_prepared(name: str, path: Path) -> Iterator[Document]:
    """A text file as it is; of a file of chats, those whose "source" is this data set."""
    if not path.name.endswith(".jsonl.gz"):
        yield from read_documents([path])
        return
    mark = f'"source": {json.dumps(name)}'  # most lines need not be parsed
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for _, line in numbered_lines(file, path):
            if mark in line and (row := json.loads(line))["source"] == name:
                yield row["messages"]


def read_origin(name: str, origin: Origin, path: Path) -> Iterator[Document]:
    """What is fit to be learned from in a publisher's file. UserError if that is nothing."""
    if origin.parse is None:
        yield from read_documents([path])
        return
    reason = "no document was found in it"
    try:
        for raw in origin.parse(path):
            if document := clean(raw):
                reason = ""
                yield document
    except UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
    if reason:
        forget(path)
        raise UserError(
            f"dataset {name}: {path} is not of the form that {origin.url} had ({reason}): delete "
            f"it, to have it downloaded anew"
        )
