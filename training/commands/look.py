"""python -m training look FILES: what is in the files, before anything is trained."""

import argparse

from training.commands.train import add_files
from training.jobs.options import read_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser, nargs="+")


def run(options: argparse.Namespace) -> int:
    read_text(options, seed=0)
    return 0
