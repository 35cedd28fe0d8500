"""python -m export ship models/NAME --out models/small: write a small copy for a plain git push."""

import argparse
from pathlib import Path

from gptcore.bundle import read_facts
from gptcore.system.files import files_in
from gptcore.system.wording import word
from training.machine.progress import waiting

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a complete model folder, with int8 and q8 or q4")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--scores",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files of python -m training evaluate --out: the project's suite, then other suites",
    )


def run(options: argparse.Namespace) -> int:
    read_facts(options.model)
    with waiting("starting PyTorch"):
        from export.ship.small import read_scores, ship

    ship(options.model, options.out, read_scores(options.scores))
    size = sum(path.stat().st_size for path in files_in(options.out).values())
    then = f"python app.py --model {word(options.out)}"
    print(f"wrote {options.out} ({size / 1e6:.1f} MB); next: {then}")
    return 0
