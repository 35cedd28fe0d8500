"""What every peer program shares: the lines in and out, and the padding of prompts.

It runs in the peers' environments: the standard library and numpy are all there is.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np

Tick = Callable[..., None]
# (prompts, n, tick) -> n ids for each prompt; `tick()` is called after each token of the batch,
# or later with the time of it.
Generate = Callable[[list[list[int]], int, Tick], list[list[int]]]


def serve(runtime: str, version: str, load: Callable[..., tuple[str, Generate]]) -> None:
    """Answer requests until the input ends; `load(folder, threads, ...)` gives (file, generate)."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
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
    """(B, T) ids and (B, T) attention mask; what pads is masked, so that any id will do."""
    width = max(map(len, prompts))
    ids = np.zeros((len(prompts), width), np.int64)
    mask = np.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, width - len(prompt) :] = prompt
        mask[i, width - len(prompt) :] = 1
    return ids, mask


def greedy(
    run: Callable[[dict[str, np.ndarray]], list[np.ndarray]],
    cache: dict[str, np.ndarray],
    prompts: list[list[int]],
    n: int,
    tick: Tick,
) -> list[list[int]]:
    """The loop over a graph with a cache; `run` returns the logits and then the cache.

    cache: the graph's inputs `past_key_values.*`, each (B, heads, 0, head size).
    """
    ids, mask = left_padded(prompts)
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    columns: list[list[int]] = []
    while len(columns) < n:
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        logits, *caches = run(inputs | cache)
        ids = logits[:, -1:].argmax(-1)  # (B, 1)
        columns.append(ids)
        tick()
        cache = dict(zip(cache, caches))
        mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
        positions = positions[:, -1:] + 1
    return np.hstack(columns).tolist()
