"""Prefill and decoding beside llama.cpp, by bits, threads and context, in turns within one run.

    python benchmarks/serving/llama_speed.py models/smollm2 --against smollm2.gguf
        [--formats q8 q4] [--threads 1 2] [--context 64 512 1536] [--rounds 5]

`--against` names a GGUF of the same model; llama.cpp's formats of the same bits are quantised from
its weights. Every contender is a process of its own that sleeps while another one works: it reads
`context` tokens at once, then decodes STEPS more. Speeds are medians of the rounds; a ratio is the
median, over the rounds, of ours to the fastest of llama.cpp's in the same round.
Bits per byte of the formats: benchmarks/export/quantize.py.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.export.quantize import LLAMA, PROGRAM, SAME_BITS
from benchmarks.training.busy import gflops, processor
from export.runtimes.environments import PYTHON, install
from gptcore.bundle import load_bundle
from gptcore.model import open_model

STEPS = 32

Times = tuple[float, float]  # seconds of a prompt, and of STEPS tokens after it


class Contender:
    """A program that answers a context on its input with a line of times."""

    def __init__(self, command: list[str | Path]):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer()

    def answer(self) -> dict:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def times(self, context: int) -> Times:
        assert self.process.stdin
        print(context, file=self.process.stdin, flush=True)
        found = self.answer()
        return found["prefill"], found["decode"]

    def close(self) -> None:
        self.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize q8,q4")
    parser.add_argument("--against", type=Path, metavar="GGUF")
    parser.add_argument("--formats", nargs="+", default=["q8", "q4"], choices=[*SAME_BITS])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--context", type=int, nargs="+", default=[64, 512, 1536])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answer", choices=[*SAME_BITS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.model, options.answer, options.threads[0])
        return
    if missing := {*options.formats} - {*load_bundle(options.model).variants}:
        made = ",".join(sorted(missing))
        parser.error(f"{options.model} has no {made}: export it again with --quantize {made}")
    print(f"{processor()}; a product of 2048 x 2048 on one core: {gflops():.0f} GFLOPS")
    print("tokens/s, and ours relative to the fastest of the others in the same round")
    print(f"{'threads':>7} {'format':8}", *(f"{f'read {n}':>18}" for n in options.context), end="")
    print(*(f"{f'write at {n}':>18}" for n in options.context))
    with tempfile.TemporaryDirectory() as folder:
        row = Path(folder) / "row.npz"
        np.savez(row, np.arange(1, 65))
        for threads in options.threads:
            for name in options.formats:
                compare(options, name, threads, row)


def compare(options: argparse.Namespace, name: str, threads: int, row: Path) -> None:
    """Print a line for one of our formats, and one for each of llama.cpp's of the same bits."""
    own = [sys.executable, __file__, options.model, "--answer", name, "--threads", str(threads)]
    contenders = {name: Contender(own)}
    if options.against:
        python = install("xllamacpp-gguf", LLAMA) / PYTHON
        longest = str(max(options.context))
        for other in SAME_BITS[name]:
            command = [python, PROGRAM, options.against, row, row.parent, other]
            command += ["--threads", str(threads), "--context", longest]
            contenders[other] = Contender(command)
    rounds = [
        {other: [c.times(n) for n in options.context] for other, c in contenders.items()}
        for _ in range(options.rounds)
    ]
    for contender in contenders.values():
        contender.close()
    for other in contenders:
        cells = []
        for part in (0, 1):
            for i, context in enumerate(options.context):
                n_tokens = STEPS if part else context
                speed = n_tokens / statistics.median(r[other][i][part] for r in rounds)
                ratio = ""
                if other == name and len(contenders) > 1:
                    ratio = f"{statistics.median(relative(r, name, i, part) for r in rounds):.2f}x"
                cells.append(f"{speed:11.0f} {ratio:6}")
        print(f"{threads:7} {other:8}", *cells, flush=True)


def relative(times: dict[str, list[Times]], name: str, i: int, part: int) -> float:
    """Return our speed relative to the fastest of the others in one round."""
    fastest = min(found[i][part] for other, found in times.items() if other != name)
    return fastest / times[name][i][part]


def answer(folder: Path, name: str, threads: int) -> None:
    """Time one of our formats for each context on the input."""
    bundle = load_bundle(folder)
    session = open_model(bundle, "cpu", threads, name).session()
    print("{}", flush=True)
    for line in sys.stdin:
        ids = np.random.default_rng(0).integers(0, bundle.config.vocab_size, int(line)).tolist()
        session.prefill([-1 % bundle.config.vocab_size])  # nothing of the last prompt is reused
        start = time.perf_counter()
        session.prefill(ids)
        read = time.perf_counter()
        for _ in range(STEPS):
            session.step(1)
        print(json.dumps({"prefill": read - start, "decode": time.perf_counter() - read}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
