"""python -m training recipe NAME: train a model in the stages that a TOML file describes."""

import argparse
from pathlib import Path

from gptcore.system.command_line import INTERRUPTED
from training.jobs.stages import RECIPES, read_recipe
from training.machine.progress import waiting
from training.run.directory import check_writable

KEPT = "; the checkpoints are kept: run the same command to continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    parser.add_argument("recipe", help=f"name of a recipe ({known}), or a TOML file")
    parser.add_argument("--out", type=Path, help="folder for the runs of the stages (runs/NAME)")
    parser.add_argument(
        "--data-dir", type=Path, help="folder with the data sets; see python -m training datasets"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="see python -m training")


def run(options: argparse.Namespace) -> int:
    stages = read_recipe(options.recipe)
    out = options.out or Path("runs") / Path(options.recipe).stem
    check_writable(out)
    with waiting("starting PyTorch"):
        from training.jobs.recipe import train_stages

    summary = train_stages(stages, out, options.data_dir, options.timeout)
    return INTERRUPTED if summary is None else 0
