"""python -m training look FILES: what is in the files, before anything is trained."""

import argparse

from training.commands.train import add_files
from training.jobs.options import show_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser, nargs="+")


def run(options: argparse.Namespace) -> int:
    show_text(options)
    return 0
