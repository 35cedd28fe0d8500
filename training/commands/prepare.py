"""python -m training prepare TEXT... --shards DIR: tokenise texts into shards, without training."""

import argparse
from pathlib import Path

from training.commands.train import add_text
from training.jobs.options import from_preset, read_text, tokenised
from training.run.settings import add_set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    add_set(parser)


def run(options: argparse.Namespace) -> int:
    model, training, encoding = from_preset(options)
    text = read_text(options, training.seed)
    shards = tokenised(options, text, Path("runs") / "shards", model, encoding)
    print(f"wrote {shards.path}; to train on it here or elsewhere: --shards FOLDER-OR-URL")
    return 0
