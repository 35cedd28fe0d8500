"""Reading of data sets by name: in prepared form, or downloaded from publishers and cleaned.

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
from training.data.corpus import Document, read_documents
from training.datasets.cleaning import clean, without_repeats
from training.datasets.origins import Origin
from training.datasets.registry import DATASETS, PREPARED
from training.formats.lines import numbered_lines
from training.formats.places import find_files
from training.machine.download import download, forget, verify

VARIABLE = "GPTCORE_DATA"
UNREADABLE = (
    *(LookupError, TypeError, ValueError, AttributeError, SyntaxError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error, EOFError),
)


def read_dataset(name: str, data_dir: Path | None = None) -> Iterator[Document]:
    """Yield the documents of a data set, always in the same order.

    Raises UserError if the name is unknown, if a file cannot be fetched or has another hash, and
    if there is no document, which nobody would notice in a mix.
    """
    check_choice("dataset", name, DATASETS)
    dataset, folder = DATASETS[name], datasets_folder(data_dir)
    if dataset.derive:
        documents = read_dataset(dataset.source, data_dir)
        made = (made for document in documents for made in dataset.derive(document))
        return some(made, f"dataset {name}: {dataset.source} has no document for it: leave it out")
    prepared = folder / dataset.prepared
    if prepared.is_file():
        verify(prepared, PREPARED[dataset.prepared])
        return some(
            read_prepared(name, prepared),
            f"dataset {name}: {prepared} has no document of it: name another --data-dir, or remove "
            f"that file to read the publishers' files instead",
        )
    paths = [obtain(origin, folder) for origin in dataset.origins]
    return without_repeats(
        document
        for origin, path in zip(dataset.origins, paths)
        for document in read_origin(name, origin, path)
    )


def datasets_folder(data_dir: Path | None) -> Path:
    """Return the folder for data sets and downloads. Raises UserError if it is not a folder."""
    named = data_dir or os.environ.get(VARIABLE)
    if named and not Path(named).is_dir():
        source = "--data-dir" if data_dir else VARIABLE
        raise UserError(f"{source} {named} is not a folder: make it, or name another")
    return Path(named or cache_folder() / "data")


def obtain(origin: Origin, folder: Path) -> Path:
    """Return the verified file of an origin; download it first if it is missing.

    Raises UserError if that fails.
    """
    path = folder / origin.file_name
    try:
        if path.is_file():
            verify(path, origin.sha256)
        else:
            download(origin.url, path, origin.sha256)
    except OSError as error:
        raise UserError(f"{path}: {error}; correct that, or name another --data-dir") from None
    return path


def some(documents: Iterator[Document], complaint: str) -> Iterator[Document]:
    """Yield all documents. Raises UserError with `complaint` if there are none."""
    first = next(documents, None)
    if first is None:
        raise UserError(complaint)
    yield first
    yield from documents


def read_prepared(name: str, path: Path) -> Iterator[Document]:
    """Yield a prepared text file, or the chats of a file whose "source" is this data set."""
    if not path.name.endswith(".jsonl.gz"):
        yield from read_documents(find_files([path]))
        return
    mark = f'"source": {json.dumps(name)}'  # lines without it need not be parsed
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for _, line in numbered_lines(file):
            if mark in line and (row := json.loads(line))["source"] == name:
                yield row["messages"]


def read_origin(name: str, origin: Origin, path: Path) -> Iterator[Document]:
    """Yield the documents of a publisher's file that are fit for training.

    Raises UserError if the file has another format than expected.
    """
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
            f"dataset {name}: {path} does not have the expected format of {origin.url} "
            f"({reason}): delete it to download it again"
        )
