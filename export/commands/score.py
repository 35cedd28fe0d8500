"""python -m export score models/NAME PAIRS.tsv: translate a file of pairs, and score the result."""

import argparse
from pathlib import Path

from gptcore.bundle import load_translation_bundle
from training.data.pairs.sentences import read_pairs
from training.machine.progress import waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the folder of a translation model")
    parser.add_argument("pairs", type=Path, help="a .tsv or .tsv.gz with columns as in training")
    parser.add_argument("--beams", type=int, default=1, help="beam width (default: 1, greedy)")
    parser.add_argument("--samples", type=int, default=10, help="how many translations to print")
    parser.add_argument("--untrained", action="store_true", help="also score an untrained model")


def run(options: argparse.Namespace) -> int:
    bundle = load_translation_bundle(options.model)
    training = bundle.facts.training
    pairs = read_pairs(options.pairs, training is not None and training.data.reverse)
    with waiting("starting PyTorch"):
        from export.verify.score import score_folder

    n_different = score_folder(bundle, pairs, options.beams, options.samples, options.untrained)
    return 1 if n_different else 0
