"""python -m export inspect models/NAME: add the graphs that the page's Inspect needs."""

import argparse
from pathlib import Path

from gptcore.bundle import read_facts
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from training.machine.progress import waiting

KEPT = "; the model folder is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder to add it to")


def run(options: argparse.Namespace) -> int:
    if isinstance(read_facts(options.model).config, Seq2SeqConfig):
        raise UserError(f"{options.model} is a translator, and has its Inspect graph already")
    with waiting("starting PyTorch"):
        from export.folder.write import add_inspect

    add_inspect(options.model)
    return 0
