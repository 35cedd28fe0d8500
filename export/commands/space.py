"""python -m export space models/NAME --out space: write a Hugging Face Space of the page."""

import argparse
from pathlib import Path

from export.commands.export import licence
from export.ship.space import SDKS, write_space
from gptcore.system.wording import word

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("--translate", type=Path, help="also add this translation model")
    parser.add_argument(
        "--out", type=Path, default=Path("space"), help="folder to write (%(default)s)"
    )
    parser.add_argument(
        "--sdk", choices=SDKS, default="gradio", help="how the Hub runs it (%(default)s)"
    )
    parser.add_argument(
        "--license",
        type=licence,
        help="licence for README.md, as the Hub names it (default: the model card's)",
    )


def run(options: argparse.Namespace) -> int:
    write_space(options.model, options.out, options.translate, options.license, options.sdk)
    print(f"wrote {options.out}; next: python -m export push {word(options.out)} USER/NAME")
    return 0
