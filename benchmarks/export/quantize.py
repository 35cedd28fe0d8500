"""A model's number formats on a text: size, bits per byte and speed, beside llama.cpp's formats.

    python benchmarks/export/quantize.py models/smollm2 --text held_out.txt [--against smollm2.gguf]
        [--context 64 512] [--rounds 5] [--threads 1]

The text is read in rows of 512 tokens, the same for every format. `--against` names a GGUF of the
same model: its weights are quantised by llama.cpp's own functions (package xllamacpp, in an
environment of its own) and measured on the same ids. In each round every format of the folder
decodes a few tokens; llama.cpp's formats follow one after the other: compare speeds on idle cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from benchmarks.export.variants import STEPS, measure
from export.folder.variants import measure as measure_text
from export.folder.variants import text_rows
from export.runtimes.environments import PYTHON, Peer, install
from gptcore.bundle import Bundle, load_bundle
from gptcore.model import open_model

ROW = 512  # tokens
LLAMA = Peer("", pip=("xllamacpp==2026.10.11549", "gguf==0.19.0"))
LLAMA_FORMATS = ("F32", "Q8_0", "Q4_K_M", "Q4_1", "Q4_0")
PROGRAM = Path(__file__).with_name("llama_cpp.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--against", type=Path, metavar="GGUF")
    parser.add_argument("--context", type=int, nargs="*", default=[64, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    bundle = load_bundle(options.model)
    ids = bundle.tokenizer.encode_ordinary(options.text.read_text(encoding="utf-8"))
    rows = list(text_rows([ids], ROW))
    n_bytes = int(bundle.tokenizer.byte_lengths[ids[1:]].sum())
    print(
        f"{bundle.name}: {len(ids)} tokens, {n_bytes} bytes; tokens/s with {options.threads} thr."
    )
    speeds = "".join(f"{f'at {context}':>8}" for context in options.context)
    print(f"{'format':10}{'MB':>9}{'bits/byte':>11}{'loss':>9}{'same':>8}{speeds}")
    for line in [*own(bundle, rows, options), *peer(rows, n_bytes, options)]:
        print(line)


def own(bundle: Bundle, rows: list, options: argparse.Namespace) -> list[str]:
    measured = measure_text(bundle.variants, rows, bundle.tokenizer.byte_lengths)
    models = {name: open_model(bundle, "cpu", options.threads, name) for name in measured}
    sessions = {name: model.session() for name, model in models.items()}
    decode = [
        measure(sessions, context, bundle.config.vocab_size, options.rounds)
        for context in options.context
    ]
    first = next(iter(measured.values())).total.bits_per_byte
    return [
        line(
            name, bundle.variants[name].stat().st_size, sums.total.bits_per_byte, first,
            sums.n_agree / sums.total.n_tokens, [STEPS / times[name][0] for times in decode],
        )
        for name, sums in measured.items()
    ]  # fmt: skip


def peer(rows: list, n_bytes: int, options: argparse.Namespace) -> list[str]:
    """Return a line for each of llama.cpp's formats, the unquantised weights first."""
    if not options.against:
        return []
    python, lines, first = install("xllamacpp-gguf", LLAMA) / PYTHON, [], None
    with tempfile.TemporaryDirectory() as folder:
        whole = [np.append(ids, targets[-1:]) for ids, targets in rows]
        np.savez(Path(folder) / "rows.npz", *whole)
        for name in LLAMA_FORMATS:
            command = [python, PROGRAM, options.against, Path(folder) / "rows.npz", folder, name]
            command += ["--threads", str(options.threads)]
            command += ["--context", *map(str, options.context)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            bits = found["nats"] / np.log(2) / n_bytes
            first = first or (bits, found["likeliest"])
            same = np.mean(np.array(found["likeliest"]) == first[1])
            speeds = list(found["speeds"].values())
            lines.append(line(name, found["bytes"], bits, first[0], same, speeds))
            (Path(folder) / f"{name}.gguf").unlink()
    return lines


def line(name: str, size: int, bits: float, first: float, same: float, speeds: list[float]) -> str:
    """Return a line of the table; `first` is the bits per byte of the unquantised weights."""
    tokens = "".join(f"{speed:8.0f}" for speed in speeds)
    return f"{name:10}{size / 1e6:9.1f}{bits:11.4f}{bits / first - 1:9.2%}{same:8.1%}{tokens}"


if __name__ == "__main__":
    main()
