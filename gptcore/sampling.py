"""From logits to the next token, in numpy.

>>> logits = np.array([1.0, 3.0, 2.0], dtype=np.float32)
>>> sample(logits, Sampling(temperature=0), np.random.default_rng(0), [])
1
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gptcore.checks import UserError, check_range, check_types


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token. Raises UserError when a value makes no sense."""

    temperature: float = 0.7  # 0 always takes the likeliest token
    top_k: int = 50  # only the k likeliest; 0 for all
    top_p: float = 1.0  # only the likeliest that together reach p (arXiv 1904.09751)
    min_p: float = 0.0  # only those at least this share of the likeliest (arXiv 2407.01082)
    repetition_penalty: float = 1.0  # over 1: tokens already in the reply get rarer
    seed: int = -1  # the same seed, the same reply; -1 for a new one each time

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "temperature", 0.0, 10.0)
        check_range(self, "top_k", 0, 1_000_000)
        check_range(self, "top_p", 0.01, 1.0)
        check_range(self, "min_p", 0.0, 1.0)
        check_range(self, "repetition_penalty", 0.5, 5.0)
        check_range(self, "seed", -1, 2**63 - 1)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(None if self.seed < 0 else self.seed)


def sample(
    logits: np.ndarray, sampling: Sampling, rng: np.random.Generator, reply: Sequence[int]
) -> int:
    """(V,) logits -> one id. `reply` holds the ids chosen so far, for the repetition penalty.

    The penalty is CTRL's (arXiv 1909.05858, section 4.1), but over the reply alone: over the
    prompt too it would punish the very names that a reply should repeat, and `<|end|>`.
    """
    if not math.isfinite(float(logits.max())):
        raise UserError("the model's output is not finite: the model folder is damaged")
    if sampling.repetition_penalty != 1.0 and reply:
        logits = penalise(logits, reply, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return int(logits.argmax())
    candidates = np.arange(len(logits))
    if 0 < sampling.top_k < len(logits):
        candidates = np.argpartition(logits, -sampling.top_k)[-sampling.top_k :]
    # Differences to the largest are divided, so a tiny temperature cannot overflow.
    scaled = logits[candidates].astype(np.float64)
    weights = np.exp((scaled - scaled.max()) / sampling.temperature)
    if sampling.top_p < 1.0:
        order = np.argsort(-weights, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        weights[order[before >= sampling.top_p * weights.sum()]] = 0.0
    weights[weights < sampling.min_p * weights.max()] = 0.0
    return int(rng.choice(candidates, p=weights / weights.sum()))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """(n, V) logits -> (n, V) log probabilities, in double precision."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def penalise(logits: np.ndarray, reply: Sequence[int], penalty: float) -> np.ndarray:
    """A copy of the logits in which the tokens of the reply are less likely."""
    logits = logits.copy()
    seen = np.unique(np.asarray(reply))
    values = logits[seen]
    logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    return logits
