"""python -m training prepare TEXT... --shards DIR: only the token shards, to train on elsewhere."""

import argparse
from pathlib import Path

from training.commands.train import add_text
from training.jobs.options import from_preset, tokenised
from training.run.settings import add_set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    add_set(parser)


def run(options: argparse.Namespace) -> int:
    shards, _ = tokenised(options, Path("runs") / "shards", *from_preset(options))
    print(f"{shards.path}: put this folder where you like, and train with --shards FOLDER-OR-URL")
    return 0
