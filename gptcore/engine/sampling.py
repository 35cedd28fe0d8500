"""Choosing the next token from logits, in numpy, and how likely tokens were.

>>> logits = np.array([1.0, 3.0, 2.0], dtype=np.float32)
>>> sample(logits, Sampling(temperature=0), draw=0.5)
1
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gptcore.checks import UserError, check_range, check_types

NOT_FINITE = "the model's output is not finite: the model folder is damaged"


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token. SETTINGS describes each field and its limits.

    Raises UserError for a value of the wrong type or outside its limits.
    """

    temperature: float = 0.7
    top_k: int = 50
    top_p: float = 1.0  # arXiv 1904.09751
    min_p: float = 0.0  # arXiv 2407.01082
    repetition_penalty: float = 1.0  # arXiv 1909.05858
    seed: int = -1

    def __post_init__(self) -> None:
        check_types(self)
        for setting in SETTINGS:
            check_range(self, setting.name, setting.lowest, setting.highest)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(None if self.seed < 0 else self.seed)


class Setting(NamedTuple):
    """Description of a field of Sampling, for the page, the static site and the command line."""

    name: str
    lowest: float  # the accepted range
    highest: float
    slider: tuple[float, float] | None  # the range of the page's slider; None: a number field
    step: float
    info: str  # what the value does, in a few words

    @property
    def default(self) -> Any:
        return getattr(Sampling, self.name)

    @property
    def is_whole(self) -> bool:
        """Whether only integers are accepted."""
        return isinstance(self.default, int)


# One entry per field of Sampling, in the same order.
SETTINGS = (
    Setting("temperature", 0.0, 10.0, (0, 2), 0.05, "0: always the likeliest token"),
    Setting("top_k", 0, 1_000_000, (0, 200), 1, "only the k likeliest tokens; 0: all"),
    Setting(
        "top_p", 0.01, 1.0, (0.05, 1), 0.01,
        "only the likeliest tokens whose probabilities sum to p; 1: all",
    ),
    Setting(
        "min_p", 0.0, 1.0, (0, 1), 0.01,
        "only tokens at least this fraction as likely as the likeliest; 0: all",
    ),
    Setting(
        "repetition_penalty", 0.5, 5.0, (1, 2), 0.01,
        "above 1: tokens already in the reply become less likely; 1: off",
    ),
    Setting("seed", -1, 2**63 - 1, None, 1, "same seed, same reply; -1: random"),
)  # fmt: skip


class Likelihood(NamedTuple):
    """How likely a token was, in nats, and the likeliest tokens in its place, in descending order.

    The first token of a prompt has no probability.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


def sample(logits: np.ndarray, sampling: Sampling, draw: float, reply: Sequence[int] = ()) -> int:
    """Choose an id from logits (V,), as `sample_rows` does; raises UserError if none is finite."""
    if not math.isfinite(float(logits.max())):
        raise UserError(NOT_FINITE)
    return int(sample_rows(logits[None], sampling, np.array([draw]), [reply])[0])


def sample_rows(
    logits: np.ndarray, sampling: Sampling, draws: np.ndarray, replies: Sequence[Sequence[int]]
) -> np.ndarray:
    """Choose an id (n,) for each row of logits (n, V).

    `draws` (n,) are random numbers in [0, 1). `replies` holds the ids so far of each row, for the
    repetition penalty. A row's choice does not depend on the other rows. The penalty is CTRL's
    (arXiv 1909.05858, section 4.1), applied to the reply only. Applied to the prompt too, it would
    penalise `<|end|>` and names that the reply should repeat.
    """
    if sampling.repetition_penalty != 1.0:
        pairs = zip(logits, replies)
        logits = np.stack([penalise(row, ids, sampling.repetition_penalty) for row, ids in pairs])
    if sampling.temperature == 0:
        return logits.argmax(1)
    if 0 < sampling.top_k < logits.shape[1]:
        candidates = np.argpartition(logits, -sampling.top_k, axis=1)[:, -sampling.top_k :]
        logits = np.take_along_axis(logits, candidates, 1)
    else:
        candidates = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    # The maximum is subtracted, so that a tiny temperature overflows to weights of 0 alone.
    scaled = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        weights = np.exp((scaled - scaled.max(1, keepdims=True)) / sampling.temperature)
    if sampling.top_p < 1.0:
        order = np.argsort(-weights, axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, 1)
        before = np.cumsum(ordered, 1) - ordered
        ordered[before >= sampling.top_p * weights.sum(1, keepdims=True)] = 0.0
        np.put_along_axis(weights, order, ordered, 1)
    weights[weights < sampling.min_p * weights.max(1, keepdims=True)] = 0.0
    total = np.cumsum(weights, 1)
    # Rounding must not reach the sum, because the last candidates may have no weight.
    target = np.minimum(draws * total[:, -1], np.nextafter(total[:, -1], 0.0))
    chosen = (total > target[:, None]).argmax(1)
    return candidates[np.arange(len(chosen)), chosen]


def likelihoods(ids: Sequence[int], logits: np.ndarray, n_top: int) -> list[Likelihood]:
    """Return how likely each id was that followed the logits (n, V)."""
    rows = np.arange(len(logits))
    peak = logits.max(1)
    total = peak + np.log(np.exp(logits - peak[:, None]).sum(1))
    left, best = logits.copy(), []
    for _ in range(min(n_top, logits.shape[1])):  # a few of thousands: faster than a partition
        best.append(left.argmax(1))
        left[rows, best[-1]] = -np.inf
    top = np.stack(best, 1) if best else np.empty((len(logits), 0), int)
    log_p = (logits[rows[:, None], top] - total[:, None]).tolist()
    chosen = (logits[rows, ids] - total).tolist()
    others = [tuple(zip(*pair)) for pair in zip(top.tolist(), log_p)]
    return [Likelihood(*one) for one in zip(ids, chosen, others)]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log probabilities (n, V) of logits (n, V), in double precision."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def penalise(logits: np.ndarray, reply: Sequence[int], penalty: float) -> np.ndarray:
    """Return a copy of the logits (V,) in which the tokens of the reply are less likely."""
    logits = logits.copy()
    seen = np.unique(np.asarray(reply, np.int64))
    values = logits[seen]
    logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    return logits
