"""python -m training recipe NAME: a model in stages, as a TOML file says."""

import argparse
from pathlib import Path

from gptcore.system.command_line import INTERRUPTED
from training.jobs.stages import RECIPES, read_recipe
from training.run.directory import check_writable

KEPT = "; what a checkpoint holds is not lost: the same again goes on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    parser.add_argument("recipe", help=f"{known}, or a TOML file")
    parser.add_argument("--out", type=Path, help="a folder for the stages' runs (runs/NAME)")
    parser.add_argument(
        "--data-dir", type=Path, help="where datasets are; see python -m training datasets"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="see python -m training")


def run(options: argparse.Namespace) -> int:
    stages = read_recipe(options.recipe)
    out = options.out or Path("runs") / Path(options.recipe).stem
    check_writable(out)
    from training.jobs.recipe import train_stages  # it imports torch

    summary = train_stages(stages, out, options.data_dir, options.timeout)
    return INTERRUPTED if summary is None else 0
