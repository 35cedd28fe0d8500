"""The number formats of a model folder: size, loss and speed, interleaved in one run.

    python benchmarks/export/variants.py models/nano [--rounds 7] [--threads 1 2] [--context 64]

In each round every format decodes a few tokens after `context` tokens, and reads a prompt. Speeds
are medians over the rounds, relative to fp32 with the same number of threads.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from gptcore.bundle import load_bundle
from gptcore.engine.onnx_session import OnnxSession
from gptcore.model import open_model

STEPS, PROMPT = 32, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--context", type=int, default=64)
    options = parser.parse_args()
    bundle = load_bundle(options.model)
    facts = bundle.facts.variants
    print(f"{bundle.name}: {bundle.facts.parameters:,} parameters, {options.rounds} rounds")
    print(
        f"{'format':8}{'threads':>8}{'MB':>8}{'bits/byte':>11}{'agreement':>11}{'KL':>9}"
        f"{'tokens/s':>10}{'decode':>8}{'prefill':>9}"
    )
    for threads in options.threads:
        models = {name: open_model(bundle, "cpu", threads, name) for name in facts}
        sessions = {name: model.session() for name, model in models.items()}
        times = measure(sessions, options.context, bundle.config.vocab_size, options.rounds)
        for name, fact in facts.items():
            decode, prefill = times[name]
            print(
                f"{name:8}{threads:8}{fact.bytes / 1e6:8.2f}{fact.bits_per_byte:11.4f}"
                f"{fact.agreement:11.2%}{fact.divergence:9.2g}{STEPS / decode:10.0f}"
                f"{times['fp32'][0] / decode:7.2f}x{times['fp32'][1] / prefill:8.2f}x"
            )


def measure(
    sessions: dict[str, OnnxSession], context: int, vocab_size: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Return the median seconds of STEPS tokens after `context` tokens, and of a prompt."""
    ids = np.random.default_rng(0).integers(0, vocab_size, max(context, PROMPT)).tolist()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sessions}
    for _ in range(rounds):
        for name, session in sessions.items():
            session.prefill([ids[0]])
            prefill = seconds(lambda s=session: s.prefill(ids[1:PROMPT]))
            session.prefill(ids[:context])
            session.step(1)
            decode = seconds(lambda s=session: [s.step(1) for _ in range(STEPS)])
            times[name].append((decode, prefill))
    return {name: tuple(map(statistics.median, zip(*pairs))) for name, pairs in times.items()}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
