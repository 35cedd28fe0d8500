"""python -m export inspect models/NAME: add the graphs that the page's Inspect needs."""

import argparse
from pathlib import Path

from gptcore.bundle import read_facts

KEPT = "; the model folder is as it was before"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder to add them to")


def run(options: argparse.Namespace) -> int:
    read_facts(options.model)
    from export.folder.write import add_inspect  # this module imports torch

    add_inspect(options.model)
    return 0
