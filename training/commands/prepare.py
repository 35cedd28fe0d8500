"""python -m training prepare TEXT... --shards DIR: tokenise texts into shards, without training."""

import argparse
from pathlib import Path

from training.commands.train import add_text
from training.jobs.options import from_preset, show_text, tokenised
from training.run.settings import add_set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    add_set(parser)


def run(options: argparse.Namespace) -> int:
    show_text(options)
    shards, _ = tokenised(options, Path("runs") / "shards", *from_preset(options))
    print(f"wrote {shards.path}; to train on it here or elsewhere: --shards FOLDER-OR-URL")
    return 0
