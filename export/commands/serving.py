"""python -m export serving models/NAME: add the graphs with which our own engine is faster."""

import argparse
from pathlib import Path

from gptcore.bundle import read_facts
from training.machine.progress import waiting

KEPT = "; the model folder is as it was before"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder to add onnx/serving.onnx to")


def run(options: argparse.Namespace) -> int:
    read_facts(options.model)
    with waiting("starting PyTorch"):
        from export.folder.serving import add_serving

    add_serving(options.model)
    return 0
