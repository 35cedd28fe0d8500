"""A long prompt: the memory that reading it takes, its speed, and how soon Stop acts.

    python benchmarks/serving/long_prompt.py FOLDER [--tokens 2000] [--variant q8] [--threads 2]

Peak memory is the process's own, above what it was after the model was opened and a short prompt
was answered; the cache of the prompt is part of it, and is printed beside it. Stop is given at
several moments of the reading, as the page gives it. Needs Linux.
"""

import argparse
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.memory import peak_memory, reset_peak
from gptcore.engine.generate import Model, Request
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model

STOPS = (0.05, 0.2, 0.4, 0.6, 0.8)  # of the time that the whole prompt takes
MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--tokens", type=int, default=2000, help="length of the prompt")
    parser.add_argument("--variant", help="variant of the model (the fastest)")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    model = load_model(options.model, variant=options.variant, threads=options.threads)
    config = model.config
    read(model, prompt(model, 16, 0))
    reset_peak()
    before = peak_memory()
    seconds = read(model, prompt(model, options.tokens, 1))
    peak = peak_memory() - before
    per_token = 2 * config.n_layer * config.n_kv_head * config.head_dim * 4
    cache = per_token * options.tokens
    print(f"{options.model} ({model.variant}), {options.threads} threads, {options.tokens} tokens")
    print(f"read in {seconds:.2f} s, {options.tokens / seconds:,.0f} tokens/s")
    print(f"memory above that of a short prompt: {peak / MB:.0f} MB at the most")
    print(f"of this the cache: {cache / MB:.0f} MB; the rest: {(peak - cache) / MB:.0f} MB")
    waits = [
        stopped(model, prompt(model, options.tokens, seed, n_reply=100), share * seconds)
        for seed, share in enumerate(STOPS, 2)
    ]
    shown = ", ".join(f"{wait:.2f}" for wait in waits)
    print(f"Stop acts after {shown} s; at the most {max(waits):.2f}, median "
          f"{statistics.median(waits):.2f}")  # fmt: skip


def prompt(model: Model, n: int, seed: int, n_reply: int = 1) -> Request:
    """A prompt of n tokens that no cache knows, for a reply of n_reply tokens."""
    drawn = random.Random(seed).choices(range(256, model.config.vocab_size), k=n)
    return Request(drawn, Sampling(temperature=0), n_reply)


def read(model: Model, request: Request) -> float:
    began = time.perf_counter()
    for _ in model.answer(request):
        pass
    return time.perf_counter() - began


def stopped(model: Model, request: Request, after: float) -> float:
    """Return the seconds from giving Stop to the end of the reply."""
    stop = threading.Event()
    given: list[float] = []

    def give() -> None:
        given.append(time.perf_counter())
        stop.set()

    threading.Timer(after, give).start()
    pieces = list(model.answer(request, stop))
    ended = time.perf_counter()
    assert pieces[-1].finish == "stopped", "the reply ended before Stop was given"
    return ended - given[0]


if __name__ == "__main__":
    main()
