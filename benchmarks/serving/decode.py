"""Decoding speed: our ONNX session against PyTorch, interleaved in one run.

    python benchmarks/serving/decode.py [--preset small] [--rounds 5] [--threads N]

The weights are random, which does not change the speed. Each round decodes a few tokens with
every contender in turn; the ratio compares the medians over the rounds.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
import torch

from export.formats.to_onnx import write_decoder
from gptcore.config import DECODERS
from gptcore.engine.generate import Session
from gptcore.engine.onnx_session import OnnxSession, open_inference
from gptcore.nn import build_model
from gptcore.nn.torch_session import TorchSession
from gptcore.system.cores import n_cores

CONTEXTS = (64, 512)
STEPS = {"onnx": 40, "pytorch, cache": 20, "pytorch, no cache": 3}


class UncachedTorchSession(TorchSession):
    """A Session without a cache: every step reads the whole sequence again."""

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.ids = list(ids)
        return super().prefill(self.ids)

    def step(self, token_id: int) -> np.ndarray:
        return self.prefill([*self.ids, token_id])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small", choices=DECODERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=n_cores())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    block_size = max(CONTEXTS) + (options.rounds + 1) * max(STEPS.values()) + 1
    config = dataclasses.replace(DECODERS[options.preset], block_size=block_size)
    model = build_model(config)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write_decoder(model, path)
        inference = open_inference(path, "cpu", options.threads)
    contenders: dict[str, Session] = {
        "onnx": OnnxSession(inference, config),
        "pytorch, cache": TorchSession(model),
        "pytorch, no cache": UncachedTorchSession(model),
    }
    print(f"{options.preset}, {options.threads} threads, fp32, medians of {options.rounds} rounds")
    print(f"{'contender':20}{'context':>8}{'tokens/s':>10}{'onnx is faster by':>20}")
    for context in CONTEXTS:
        speeds = measure(contenders, context, config.vocab_size, options.rounds)
        for name, speed in speeds.items():
            print(f"{name:20}{context:8}{speed:10.1f}{speeds['onnx'] / speed:19.2f}x")


def measure(
    contenders: dict[str, Session], context: int, vocab_size: int, rounds: int
) -> dict[str, float]:
    """Return each contender's tokens per second after `context` tokens, measured in turns."""
    prompt = np.random.default_rng(0).integers(0, vocab_size, context).tolist()
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, session in contenders.items():
            session.prefill(prompt)
            session.step(1)
            start = time.perf_counter()
            for _ in range(STEPS[name]):
                session.step(1)
            speeds[name].append(STEPS[name] / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in speeds.items()}


if __name__ == "__main__":
    main()
