"""python -m training datasets NAME...: list or download the named data sets.

python -m training datasets                        list all, with licence and place on the disk
python -m training datasets gsm8k jokes            download these and count their documents
python -m training datasets jokes --out jokes.jsonl    and write them, to train on
"""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from gptcore.checks import UserError, check_choice
from gptcore.system.files import new_file
from gptcore.system.wording import table
from training.data.corpus import document_text
from training.datasets.origins import Dataset
from training.datasets.reading import VARIABLE, datasets_folder, read_dataset
from training.datasets.registry import DATASETS
from training.machine.progress import progress

HASHES = (
    "hash: pinned: a download must have the SHA-256 that this project knows; first use: the first\n"
    "download is trusted, and every later one must be the same"
)
KEPT = "; downloaded data is kept: run the same command to continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets to download")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help=f"folder with the data, and for downloads (default: ${VARIABLE} or the cache)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the named ones as JSON lines, to train on"
    )
    parser.add_argument("--json", action="store_true", help="list them as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    folder = datasets_folder(options.data_dir)
    for name in options.names:
        check_choice("dataset", name, DATASETS)
    if options.out and not options.names:
        raise UserError(f"--out {options.out}: name the data sets to write")
    if options.out and options.out.exists():
        raise UserError(f"{options.out} exists: choose another --out")
    if not options.names:
        print(listed(folder) if options.json else described(folder))
    with ExitStack() as stack:
        file = None
        if options.out:
            temporary = stack.enter_context(new_file(options.out))
            file = stack.enter_context(open(temporary, "w", encoding="utf-8"))
        for name in options.names:
            take(name, options.data_dir, file)
    return 0


def take(name: str, data_dir: Path | None, out: TextIO | None) -> None:
    """Count the documents of a data set, and write them to a file if one is given."""
    n_documents = n_bytes = 0
    documents = read_dataset(name, data_dir)
    for document in progress(documents, f"reading {name}", unit=" documents"):
        n_documents += 1
        n_bytes += len(document_text(document).encode("utf-8"))
        if out:
            row = {"text" if isinstance(document, str) else "messages": document}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{name}: {n_documents:,} documents, {n_bytes:,} bytes")


def listed(folder: Path) -> str:
    """Return all data sets as a JSON list."""
    facts = [
        {"name": name, "licence": d.licence, "where": where(d, folder), "about": d.about}
        for name, d in DATASETS.items()
    ]
    return json.dumps(facts, indent=1)


def described(folder: Path) -> str:
    """Return a table of all data sets with their licences and places on the disk."""
    head = ("name", "licence", "share-alike", "where", "hash", "what it is")
    rows = [
        (name, d.licence, "yes" if d.share_alike else "no", where(d, folder), d.trust, d.about)
        for name, d in DATASETS.items()
    ]
    return "\n".join([f"data in {folder}", table([head, *rows]), HASHES])


def where(dataset: Dataset, folder: Path) -> str:
    if (folder / dataset.prepared).is_file():
        return "prepared"
    n_missing = sum(not (folder / origin.file_name).is_file() for origin in dataset.origins)
    if not n_missing:
        return "downloaded"
    return "to download" if n_missing == len(dataset.origins) else "partly downloaded"
