"""python -m export gguf models/NAME: write one file for llama.cpp."""

import argparse
from pathlib import Path

from export.gguf.write import FILE_TYPES, write_gguf

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("--out", type=Path, help="the file to write (default: MODEL.gguf)")
    parser.add_argument(
        "--dtype",
        choices=FILE_TYPES,
        default="f32",
        help="number format of the weights (%(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    folder = options.model if options.model.is_symlink() else options.model.resolve()
    out = options.out or folder.with_name(folder.name + ".gguf")
    write_gguf(options.model, out, options.dtype)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
