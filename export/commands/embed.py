"""python -m export embed models/NAME --out kit: all that a program needs to run the model."""

import argparse
from pathlib import Path

from export.kit.write import write_kit

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument(
        "--out", type=Path, default=Path("kit"), help="folder to write (%(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    write_kit(options.model, options.out)
    return 0
