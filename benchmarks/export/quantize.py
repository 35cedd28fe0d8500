"""A model's number formats on a text: size and bits per byte, beside llama.cpp's formats.

    python benchmarks/export/quantize.py models/smollm2 --against smollm2.gguf
        [--text held_out.txt] [--tokens 20000] [--context 64 512] [--rounds 5] [--threads 1]

The text is read in rows of 512 tokens, the same for every format. `--against` names a GGUF of the
same model (`python -m export gguf` writes one): its weights are quantised by llama.cpp's own
functions (package xllamacpp, in an environment of its own) and measured on the same ids. Below the
table stands whether each of our formats holds its bars: a loss, and llama.cpp's size for the
same bits. With `--context`, every format also decodes some tokens after so many, llama.cpp's after
ours: compare speeds on idle cores.
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

from benchmarks.export.variants import STEPS, measure
from export.folder.variants import WORST, text_rows
from export.folder.variants import measure as measure_text
from export.runtimes.environments import PYTHON, Peer, install
from gptcore.bundle import Bundle, graph_bytes, load_bundle
from gptcore.model import open_model

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
    speeds: list[float]  # tokens/s after each context

    def __str__(self) -> str:
        speeds = "".join(f"{speed:8.0f}" for speed in self.speeds)
        return (
            f"{self.name:10}{self.size / 1e6:9.1f}{self.bits:11.4f}{self.loss:9.2%}"
            f"{self.same:8.1%}{speeds}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize q8,q4")
    parser.add_argument("--text", type=Path, default=ROOT / "docs" / "training.md")
    parser.add_argument("--tokens", type=int, default=20_000, help="of the text, at most")
    parser.add_argument("--against", type=Path, metavar="GGUF")
    parser.add_argument("--context", type=int, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    bundle = load_bundle(options.model)
    ids = bundle.tokenizer.encode(options.text.read_text(encoding="utf-8"))[: options.tokens + 1]
    rows = list(text_rows([ids], ROW))
    n_bytes = int(bundle.tokenizer.byte_lengths[ids[1:]].sum())
    print(f"{bundle.name}: {len(ids) - 1} tokens, {n_bytes} bytes of {options.text.name}")
    speeds = "".join(f"{f'at {context}':>8}" for context in options.context)
    print(f"{'format':10}{'MB':>9}{'bits/byte':>11}{'loss':>9}{'same':>8}{speeds}")
    ours = own(bundle, rows, options)
    print(*ours, sep="\n", flush=True)
    theirs = peer(rows, n_bytes, options) if options.against else []
    print(*theirs, *bars(ours, theirs), sep="\n")


def own(bundle: Bundle, rows: list, options: argparse.Namespace) -> list[Line]:
    measured = measure_text(bundle.variants, rows, bundle.tokenizer.byte_lengths)
    models = {name: open_model(bundle, "cpu", options.threads, name) for name in measured}
    sessions = {name: model.session() for name, model in models.items()}
    decode = [
        measure(sessions, context, bundle.config.vocab_size, options.rounds)
        for context in options.context
    ]
    first = measured["fp32"].total.bits_per_byte
    lines = []
    for name, sums in measured.items():
        size, bits = graph_bytes(bundle.variants[name]), sums.total.bits_per_byte
        speeds = [STEPS / times[name][0] for times in decode]
        same = sums.n_agree / sums.total.n_tokens
        lines.append(Line(name, size, bits, bits / first - 1, same, speeds))
    return lines


def peer(rows: list, n_bytes: int, options: argparse.Namespace) -> list[Line]:
    """Return a line for each of llama.cpp's formats, the unquantised weights first."""
    python, lines, first = install("xllamacpp-gguf", LLAMA) / PYTHON, [], None
    with tempfile.TemporaryDirectory() as folder:
        whole = [np.append(ids, targets[-1:]) for ids, targets in rows]
        np.savez(Path(folder) / "rows.npz", *whole)
        for name in LLAMA_FORMATS:
            command = [python, PROGRAM, options.against, Path(folder) / "rows.npz", folder, name]
            command += ["--threads", str(options.threads)]
            command += ["--context", *map(str, options.context)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            bits = found["nats"] / np.log(2) / n_bytes
            first = first or (bits, found["likeliest"])
            same = float(np.mean(np.array(found["likeliest"]) == first[1]))
            speeds = list(found["speeds"].values())
            lines.append(Line(name, found["bytes"], bits, bits / first[0] - 1, same, speeds))
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
