"""Replies in progress: which tokens they may take, which they take, and who receives them.

>>> for i, token_id in choose(rows, logits, range(len(rows))):          # doctest: +SKIP
...     rows[i].reply.add(token_id, logits[i])
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event

import numpy as np

from gptcore.checks import UserError
from gptcore.engine.generate import Piece, Reply, Stop
from gptcore.engine.sampling import NOT_FINITE, Sampling, sample_rows

Deliver = Callable[[Piece | Exception], None]  # called from the engine's thread; must not block


@dataclass
class Row:
    """A reply in progress."""

    reply: Reply
    stop: Stop
    deliver: Deliver
    asker: str
    unread: list[int]  # ids of the prompt, or the last token of the reply, not yet in the cache
    slot: int = -1
    delivered: float = 0.0  # time of the last piece

    def __post_init__(self) -> None:
        self.settings = replace(self.reply.request.sampling, seed=-1)  # equal ones go together


class Closed(Event):
    """The stop flag of one reply: set by itself or by the caller's flag, which stays as it is."""

    def __init__(self, asked: Stop | None):
        super().__init__()
        self.asked = asked

    def is_set(self) -> bool:
        return super().is_set() or bool(self.asked and self.asked.is_set())


def restricted(rows: list[Row], logits: np.ndarray) -> tuple[np.ndarray, dict[int, UserError]]:
    """Return logits (n, V) of the tokens each row may take, and failed rows' errors by index."""
    is_finite = np.isfinite(logits.max(1))
    failed = {i: UserError(NOT_FINITE) for i in np.flatnonzero(~is_finite).tolist()}
    bound = [i for i, row in enumerate(rows) if row.reply.grammar and i not in failed]
    allowed = logits.copy() if bound else logits  # the reply reports the model's own
    for i in bound:
        try:
            allowed[i] = rows[i].reply.allowed(logits[i])
        except UserError as error:
            failed[i] = error
    return allowed, failed


def choose(rows: list[Row], logits: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the index of each wanted row and its next token.

    Rows with the same settings are sampled together.
    """
    groups: defaultdict[Sampling, list[int]] = defaultdict(list)
    for i in wanted:
        groups[rows[i].settings].append(i)
    for sampling, group in groups.items():
        replies = [rows[i].reply for i in group]
        draws = np.array([reply.rng.random() for reply in replies])
        ids = sample_rows(logits[group], sampling, draws, [reply.ids for reply in replies])
        yield from zip(group, ids.tolist())


def send(row: Row, piece: Piece | Exception) -> None:
    """Deliver a piece; nobody wants the rest if that fails."""
    try:
        row.deliver(piece)
    except Exception:
        row.stop.set()
