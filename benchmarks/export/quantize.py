"""A model's number formats on a text: size and bits per byte, beside llama.cpp's formats.

    python benchmarks/export/quantize.py models/smollm2 --against smollm2.gguf
        [--text held_out.txt] [--tokens 20000]

The text is read in rows of 512 tokens, the same for every format. `--against` names a GGUF of the
same model (`python -m export gguf` writes one): its weights are quantised by llama.cpp's own
functions (package xllamacpp, in an environment of its own) and measured on the same ids. Below the
table stands whether each of our formats holds its bars: a loss, and llama.cpp's size for the
same bits. Their speeds: benchmarks/serving/llama_speed.py.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from export.folder.variants import WORST, text_rows
from export.folder.variants import measure as measure_text
from export.runtimes.environments import PYTHON, Peer, install
from gptcore.bundle import Bundle, graph_bytes, load_bundle

ROW = 512  # tokens
LLAMA = Peer("", pip=("xllamacpp==2026.10.11549", "gguf==0.19.0"))
LLAMA_FORMATS = ("F32", "Q8_0", "Q4_K_M", "Q4_1", "Q4_0")
SAME_BITS = {"q8": ("Q8_0",), "q4": ("Q4_0", "Q4_1", "Q4_K_M")}
PROGRAM = Path(__file__).with_name("llama_cpp.py")


class Line(NamedTuple):
    """A line of the table."""

    name: str
    size: int  # bytes
    bits: float  # per byte of the text
    loss: float  # relative increase of these over the unquantised weights in the same runtime
    same: float  # share of the tokens whose likeliest successor is the unquantised weights'

    def __str__(self) -> str:
        return (
            f"{self.name:10}{self.size / 1e6:9.1f}{self.bits:11.4f}{self.loss:9.2%}{self.same:8.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize q8,q4")
    parser.add_argument("--text", type=Path, default=ROOT / "docs" / "training.md")
    parser.add_argument("--tokens", type=int, default=20_000, help="of the text, at most")
    parser.add_argument("--against", type=Path, metavar="GGUF")
    options = parser.parse_args()
    bundle = load_bundle(options.model)
    ids = bundle.tokenizer.encode(options.text.read_text(encoding="utf-8"))[: options.tokens + 1]
    rows = list(text_rows([ids], ROW))
    n_bytes = int(bundle.tokenizer.byte_lengths[ids[1:]].sum())
    print(f"{bundle.name}: {len(ids) - 1} tokens, {n_bytes} bytes of {options.text.name}")
    print(f"{'format':10}{'MB':>9}{'bits/byte':>11}{'loss':>9}{'same':>8}")
    ours = own(bundle, rows)
    print(*ours, sep="\n", flush=True)
    theirs = peer(options.against, rows, n_bytes) if options.against else []
    print(*theirs, *bars(ours, theirs), sep="\n")


def own(bundle: Bundle, rows: list) -> list[Line]:
    measured = measure_text(bundle.variants, rows, bundle.tokenizer.byte_lengths)
    first = measured["fp32"].total.bits_per_byte
    lines = []
    for name, sums in measured.items():
        size, bits = graph_bytes(bundle.variants[name]), sums.total.bits_per_byte
        same = sums.n_agree / sums.total.n_tokens
        lines.append(Line(name, size, bits, bits / first - 1, same))
    return lines


def peer(gguf: Path, rows: list, n_bytes: int) -> list[Line]:
    """Return a line for each of llama.cpp's formats, the unquantised weights first."""
    python, lines, first = install("xllamacpp-gguf", LLAMA) / PYTHON, [], None
    with tempfile.TemporaryDirectory() as folder:
        whole = [np.append(ids, targets[-1:]) for ids, targets in rows]
        np.savez(Path(folder) / "rows.npz", *whole)
        for name in LLAMA_FORMATS:
            command = [python, PROGRAM, gguf, Path(folder) / "rows.npz", folder, name]
            done = subprocess.run(command, input="", stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            bits = found["nats"] / np.log(2) / n_bytes
            first = first or (bits, found["likeliest"])
            same = float(np.mean(np.array(found["likeliest"]) == first[1]))
            lines.append(Line(name, found["bytes"], bits, bits / first[0] - 1, same))
            (Path(folder) / f"{name}.gguf").unlink()
    return lines


def bars(ours: list[Line], theirs: list[Line]) -> list[str]:
    """Return a sentence for each of our formats that has bars."""
    sentences = []
    for line in ours:
        if line.name not in SAME_BITS:
            continue
        limit = WORST[line.name]
        loss = "holds" if line.loss <= limit else "misses"
        others = [
            f"{'no larger' if line.size <= other.size else 'larger'} than {other.name}"
            for other in theirs
            if other.name in SAME_BITS[line.name]
        ]
        sentences.append("; ".join([f"{line.name} {loss} a loss of {limit:.1%}", *others]))
    return sentences


if __name__ == "__main__":
    main()
