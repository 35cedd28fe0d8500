"""python -m export desktop models/NAME --out dist: write an application folder for this system."""

import argparse
from pathlib import Path

from gptcore.bundle import load_bundle

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("--out", type=Path, required=True, help="the application folder to write")


def run(options: argparse.Namespace) -> int:
    bundle = load_bundle(options.model)
    from export.ship.desktop import build_application

    build_application(bundle, options.out)
    return 0
