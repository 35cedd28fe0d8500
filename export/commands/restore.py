"""python -m export restore DIR: add the weights that a shipped folder was stripped of.

    python -m export restore models/default
    python -m training chats.jsonl --init models/default --out runs/mine

The command reads them from the 8-bit (else the 4-bit) file of the folder, and writes
model.safetensors, from which a training can go on.
"""

import argparse
from pathlib import Path

from gptcore.bundle import INDEX, VARIANTS, WEIGHTS, add_files, load_bundle
from gptcore.checks import UserError
from training.machine.progress import waiting

SOURCES = ("q8", "q4")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a model folder without model.safetensors")


def run(options: argparse.Namespace) -> int:
    bundle = load_bundle(options.folder)
    if any((options.folder / name).exists() for name in (WEIGHTS, INDEX)):
        raise UserError(f"{options.folder} has its weights already: nothing is to be restored")
    source = next((name for name in SOURCES if name in bundle.variants), None)
    if source is None:
        raise UserError(f"{options.folder} has none of {', '.join(SOURCES)} to restore from")
    with waiting("starting PyTorch"):
        from export.formats.restore import restored
        from export.formats.weights import write_decoder_weights
    with waiting(f"reading {VARIANTS[source]}"):
        weights = restored(bundle.variants[source], bundle.config)
        written = write_decoder_weights(weights, bundle.config, options.folder)
    add_files(options.folder, bundle.facts, written)
    print(f"{options.folder / WEIGHTS}: the weights of {VARIANTS[source]}, in fp32")
    return 0
