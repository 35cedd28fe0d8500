"""python -m training translate PAIRS --out runs/NAME: train a translator on sentence pairs."""

import argparse
from pathlib import Path

from gptcore.checks import UserError
from gptcore.config import TRANSLATORS
from gptcore.system.command_line import INTERRUPTED
from training.commands import train
from training.data.pairs.sentences import check_pairs_file
from training.jobs.options import translator_preset
from training.machine.progress import waiting
from training.run.config import TRAININGS
from training.run.directory import Run
from training.run.lock import check_free
from training.run.settings import add_common, goes_on, settings_help

kept = train.kept
DEFAULT_PRESET = "translator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name = DEFAULT_PRESET
    idle = ["lora", "keep", "row_tokens"]
    parser.epilog = settings_help(TRANSLATORS[name], TRAININGS[name], name, idle)
    parser.add_argument(
        "pairs", nargs="?", type=Path, help="a .tsv or .tsv.gz: source, tab, target on each line"
    )
    parser.add_argument("--out", type=Path, help="run directory to write (runs/PRESET)")
    parser.add_argument(
        "--reverse", action="store_true", help="translate from the second column to the first"
    )
    parser.add_argument(
        "--validation", type=Path, help="pairs for validation (default: some of the given pairs)"
    )
    parser.add_argument(
        "--preset", help=f"one of {', '.join(TRANSLATORS)} (default: {DEFAULT_PRESET})"
    )
    add_common(parser)


def run(options: argparse.Namespace) -> int:
    options.out = options.out or Path("runs") / (options.preset or DEFAULT_PRESET)
    if not goes_on(options):
        options.preset = options.preset or DEFAULT_PRESET
    check(options)
    with waiting("starting PyTorch"):
        from training.jobs.translation import train_translator

    return INTERRUPTED if train_translator(options) is None else 0


def check(options: argparse.Namespace) -> None:
    """Raise UserError for mistakes that can be found before torch is imported."""
    if goes_on(options):
        Run.load(options.out)
        return
    translator_preset(options)
    if options.pairs is None:
        raise UserError("name a file of pairs: source, tab, target on each line")
    check_free(options.out)
    for path in filter(None, (options.pairs, options.validation)):
        check_pairs_file(path)
