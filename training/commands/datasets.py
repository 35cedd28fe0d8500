"""python -m training datasets NAME...: list or download the named data sets.

python -m training datasets                        list all, with licence and place on the disk
python -m training datasets gsm8k jokes            download these and count their documents
"""

import argparse
from pathlib import Path

from gptcore.checks import check_choice
from training.data.corpus import document_text
from training.datasets.origins import Dataset
from training.datasets.reading import VARIABLE, data_folder, read_dataset
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


def run(options: argparse.Namespace) -> int:
    folder = data_folder(options.data_dir)
    for name in options.names:
        check_choice("dataset", name, DATASETS)
    if not options.names:
        print(table(folder))
    for name in options.names:
        print_count(name, options.data_dir)
    return 0


def print_count(name: str, data_dir: Path | None) -> None:
    n_documents = n_bytes = 0
    for document in progress(read_dataset(name, data_dir), f"reading {name}", unit=" documents"):
        n_documents += 1
        n_bytes += len(document_text(document).encode("utf-8"))
    print(f"{name}: {n_documents:,} documents, {n_bytes:,} bytes")


def table(folder: Path) -> str:
    """Return a table of all data sets with their licences and places on the disk."""
    head = ("name", "licence", "share-alike", "where", "hash", "what it is")
    rows = [
        (name, d.licence, "yes" if d.share_alike else "no", where(d, folder), d.trust, d.about)
        for name, d in DATASETS.items()
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths)) for row in (head, *rows))
    return "\n".join([f"data in {folder}", *(line.rstrip() for line in lines), HASHES])


def where(dataset: Dataset, folder: Path) -> str:
    if (folder / dataset.prepared).is_file():
        return "prepared"
    if not dataset.origins:
        return "not here"
    n_missing = sum(not (folder / origin.file_name).is_file() for origin in dataset.origins)
    if not n_missing:
        return "downloaded"
    return "to download" if n_missing == len(dataset.origins) else "partly downloaded"
