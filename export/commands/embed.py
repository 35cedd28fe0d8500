"""python -m export embed models/NAME --out kit: all that a program needs to run the model."""

import argparse
from pathlib import Path

from gptcore.bundle import read_facts
from training.machine.progress import waiting

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument(
        "--out", type=Path, default=Path("kit"), help="folder to write (%(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    read_facts(options.model)
    with waiting("loading the libraries"):
        from export.kit.write import write_kit

    write_kit(options.model, options.out)
    return 0
