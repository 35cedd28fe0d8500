"""python -m training recipe NAME: train a model in the stages that a TOML file describes.

python -m training recipe default
python -m training recipe default --init models/default --from polish    # the last stage again
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError, check_choice
from gptcore.system.command_line import INTERRUPTED
from training.jobs.stages import RECIPES, Stage, read_recipe
from training.machine.progress import waiting
from training.run.lock import check_writable

KEPT = "; the checkpoints are kept: run the same command to continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    parser.add_argument("recipe", help=f"name of a recipe ({known}), or a TOML file")
    parser.add_argument("--out", type=Path, help="folder for the runs of the stages (runs/NAME)")
    parser.add_argument(
        "--data-dir", type=Path, help="folder with the data sets; see python -m training datasets"
    )
    parser.add_argument(
        "--init", type=Path, metavar="DIR", help="start from this model folder's weights"
    )
    parser.add_argument(
        "--from", dest="first", metavar="STAGE", help="with --init: begin with this stage"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="see python -m training")


def run(options: argparse.Namespace) -> int:
    stages = stages_from(read_recipe(options.recipe), options.first)
    if options.first and not options.init:
        raise UserError("--from leaves out stages: name a model to start from with --init")
    out = options.out or Path("runs") / Path(options.recipe).stem
    check_writable(out)
    with waiting("starting PyTorch"):
        from training.jobs.recipe import train_stages

    summary = train_stages(stages, out, options.data_dir, options.timeout, options.init)
    return INTERRUPTED if summary is None else 0


def stages_from(stages: list[Stage], first: str | None) -> list[Stage]:
    """Return the stages from the named one on. Raises UserError."""
    if first is None:
        return stages
    names = [stage.name for stage in stages]
    check_choice("--from", first, names)
    return stages[names.index(first) :]
