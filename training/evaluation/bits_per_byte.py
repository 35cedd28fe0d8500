"""Bits per byte of documents by source: their cross-entropy per byte of text.

    >>> bits_per_byte(model, logits, read_sourced([file]))                # doctest: +SKIP
    {'tinystories': Total(n_documents=54, n_tokens=9120, n_bytes=35077, nats=11876.3)}

In conversations only the assistant's tokens count, with the token that ends each reply; in texts
all tokens count. A document longer than the context is read in windows of block_size tokens that
overlap by half. Every token counts once, with at least half a context before it unless the
document begins there. The figure differs slightly from training's, which measures rows of
several documents.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gptcore.engine.generate import Model
from gptcore.engine.sampling import log_softmax
from training.data.corpus import Document, ids_and_mask
from training.machine.progress import progress

Logits = Callable[[np.ndarray], np.ndarray]  # ids (T,) -> (T, V)


@dataclasses.dataclass(frozen=True)
class Total:
    """Sums over the measured documents; `a + b` is the total of both."""

    n_documents: int = 0  # 0 if rows of several documents were measured
    n_tokens: int = 0
    n_bytes: int = 0
    nats: float = 0.0

    def __add__(self, other: "Total") -> "Total":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Total(*(a + b for a, b in pairs))

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(self.n_tokens, 1)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte, which can be compared across tokenizers."""
        return self.nats / math.log(2) / max(self.n_bytes, 1)


def bits_per_byte(
    model: Model, logits: Logits, documents: Iterable[tuple[Document, str]]
) -> dict[str, Total]:
    """Measure (document, source) pairs; return the totals by source.

    `logits` takes a window of ids (T,) and returns (T, V).
    """
    totals: dict[str, Total] = defaultdict(Total)
    lengths = model.tokenizer.byte_lengths
    for document, source in progress(documents, "measuring", unit=" documents"):
        ids, counts = ids_and_mask(document, model.tokenizer)
        nats = 0.0
        for start, first, end in windows(len(ids), model.config.block_size):
            at = first + np.flatnonzero(counts[first:end])  # tokens counted in this window
            if len(at):
                nats += surprise(logits(ids[start : end - 1])[at - 1 - start], ids[at])
        n_bytes = int(lengths[ids[counts]].sum())
        totals[source] += Total(1, int(counts.sum()), n_bytes, nats)
    return dict(totals)


def windows(n: int, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield windows of n ids as (start, first, end): ids[start:end - 1] predict ids[first:end]."""
    first = 1
    while first < n:
        start = max(0, first - block_size // 2)
        end = min(start + block_size + 1, n)
        yield start, first, end
        first = end


def surprise(logits: np.ndarray, ids: np.ndarray) -> float:
    """Return the negative log-likelihood in nats of n ids, given their logits (n, V)."""
    return -float(np.take_along_axis(log_softmax(logits), ids[:, None], 1).sum())
