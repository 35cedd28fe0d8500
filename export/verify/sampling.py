"""Compares a sampling graph with the engine's sampler on the portable graph's logits.

>>> compare_sampling(folder / "model.onnx", folder / "sampling.onnx", config)   # doctest: +SKIP
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from export.formats.feeds import decoder_feeds
from export.verify.serving import open_exact
from gptcore.config import ModelConfig
from gptcore.engine.sampling import Sampling, sample_rows
from gptcore.facts import Check
from gptcore.feeds import no_cache

ROWS, LENGTH, STEPS = 4, 7, 12
MARGIN = 1e-3  # a random number this close to where another token begins may be rounded to it
ROUNDED = 1e-4  # a correct program's logits may be so far from these


class Choice(NamedTuple):
    """How to choose a token, and the random number that chooses it."""

    temperature: float
    top_k: int
    top_p: float
    draw: float


def choose(logits: np.ndarray, choice: Choice) -> int:
    """Return the id that a sampling graph is to choose from logits (V,).

    It is the engine's choice from the tokens in the order of their logits.
    """
    order = np.argsort(-logits, kind="stable")[: choice.top_k or None]
    settings = Sampling(temperature=choice.temperature, top_k=0, top_p=choice.top_p)
    [place] = sample_rows(logits[None, order], settings, np.array([choice.draw]), [[]])
    return int(order[place])


def choices(rng: np.random.Generator, top_k: int = 50) -> Iterator[Choice]:
    """Yield ways to choose, drawn at random: greedy, plain, the likeliest k, the likeliest p."""
    kinds = ((0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, top_k, 1.0), (1.3, 0, 0.9), (1.0, top_k, 0.5))
    while True:
        for temperature, k, top_p in kinds:
            yield Choice(temperature, k, top_p, round(float(rng.random()), 6))


def is_clear(logits: np.ndarray, choice: Choice) -> bool:
    """Whether rounding cannot change the choice: near draws and logits choose the same token."""
    near = [min(max(choice.draw + by, 0.0), 1.0 - MARGIN / 2) for by in (-MARGIN, MARGIN)]
    chosen = {choose(logits, choice._replace(draw=draw)) for draw in (choice.draw, *near)}
    away = np.empty_like(logits)  # moves each logit towards one neighbour in their order
    away[np.argsort(-logits, kind="stable")] = ROUNDED * (-1.0) ** np.arange(len(logits))
    return len(chosen | {choose(logits + away, choice), choose(logits - away, choice)}) == 1


def sampling_feeds(choice: Choice, draws: list[float]) -> dict[str, np.ndarray]:
    """Return the inputs by which a sampling graph chooses, for one draw a row."""
    return {
        "temperature": np.array([choice.temperature], np.float32),
        "top_k": np.array([choice.top_k], np.int64),
        "top_p": np.array([choice.top_p], np.float32),
        "draws": np.array(draws, np.float32),
    }


def compare_sampling(portable: Path, sampling: Path, config: ModelConfig) -> Check:
    """Choose tokens for several rows and steps; a Check of how many are not what they should be."""
    rng = np.random.default_rng(0)
    ways = choices(rng)
    n_steps = min(STEPS, config.block_size)
    n_read = max(min(LENGTH, config.block_size - n_steps), 1)
    ids = rng.integers(0, config.vocab_size, (ROWS, n_read))
    read, chooser = open_exact(portable), open_exact(sampling)
    cache, n_cases, n_wrong = no_cache(config, ROWS), 0, 0
    for _ in range(min(n_steps, config.block_size - n_read + 1)):
        feeds, choice = decoder_feeds(ids, cache), next(ways)
        logits, *_ = read.run(None, feeds)
        draws = rng.random(ROWS).round(6).tolist()
        chosen, *cache = chooser.run(None, feeds | sampling_feeds(choice, draws))
        for row, draw, got in zip(logits[:, -1], draws, chosen[:, 0]):
            one = choice._replace(draw=draw)
            if is_clear(row, one):
                n_cases += 1
                n_wrong += int(got != choose(row, one))
        ids = chosen
    return Check(f"{sampling.name}: tokens that differ", n_cases, 0, n_wrong)
