"""What the programs here share: requests and replies on standard streams, and padding.

It runs in the environments of the other runtimes, which all have numpy.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np

FILE = "onnx/model.onnx"
Tick = Callable[..., None]
# (prompts, n, tick) -> n ids per prompt. `tick()` is called after each token of the batch, or later
# with the time at which the token was ready.
Generate = Callable[[list[list[int]], int, Tick], list[list[int]]]


def serve(runtime: str, version: str, load: Callable[..., tuple[str, Generate]]) -> None:
    """Answer requests until the input ends; `load(folder, threads, ...)` gives (file, generate)."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is not a reply, so it goes to standard error
    folder, threads, *more = sys.argv[1:]
    file, generate = load(Path(folder), int(threads), *more)
    print_line(replies, runtime=runtime, version=version, file=file)
    for line in sys.stdin:
        request, times = json.loads(line), [time.perf_counter()]

        def tick(at: float | None = None, times: list[float] = times) -> None:
            times.append(time.perf_counter() if at is None else at)

        ids = generate(request["prompts"], request["n"], tick)
        prefill, decoding = times[1] - times[0], times[-1] - times[1]
        print_line(replies, ids=ids, prefill_seconds=prefill, seconds=decoding)


def print_line(out: TextIO, **values: object) -> None:
    print(json.dumps(values), file=out, flush=True)


def left_padded(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (B, T) and an attention mask (B, T); padding is masked, so its id is arbitrary."""
    width = max(map(len, prompts))
    ids = np.zeros((len(prompts), width), np.int64)
    mask = np.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, width - len(prompt) :] = prompt
        mask[i, width - len(prompt) :] = 1
    return ids, mask


def greedy(
    run: Callable[[dict[str, np.ndarray]], list[np.ndarray]],
    caches: dict[str, tuple[int, int]],
    prompts: list[list[int]],
    n: int,
    tick: Tick,
) -> list[list[int]]:
    """Generate greedily with a cached graph; `run` returns the logits followed by the cache.

    caches: heads and head size of each of the graph's inputs `past_key_values.*`.
    """
    ids, mask = left_padded(prompts)
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    cache = {
        name: np.zeros((len(prompts), heads, 0, size), np.float32)
        for name, (heads, size) in caches.items()
    }
    columns: list[list[int]] = []
    while len(columns) < n:
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        logits, *present = run(inputs | cache)
        ids = logits[:, -1:].argmax(-1)  # (B, 1)
        columns.append(ids)
        tick()
        cache = dict(zip(cache, present))
        mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
        positions = positions[:, -1:] + 1
    return np.hstack(columns).tolist()
