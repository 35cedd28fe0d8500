"""Bits per byte by source: what a text costs somebody who has the model.

    >>> bits_per_byte(model, logits, read_sourced([file]))                # doctest: +SKIP
    {'tinystories': Total(n_documents=54, n_tokens=9120, n_bytes=35077, nats=11876.3)}

Of conversations the assistant's words count, with the token that ends them; of texts all words
do. A document longer than the context is read in windows of block_size tokens, which overlap by
half a context. Every token counts once, and half a context stands before it unless the document
begins there. (Training measures rows of several documents, so its figure differs a bit.)
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gptcore.checks import UserError
from gptcore.generate import Model
from gptcore.sampling import log_softmax
from gptcore.text.chat_template import loss_mask, render, text_opening
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Document
from training.machine.progress import progress

Logits = Callable[[np.ndarray], np.ndarray]  # ids (T,) -> (T, V)


@dataclasses.dataclass(frozen=True)
class Total:
    """Sums over what was measured; `a + b` is the total of both."""

    n_documents: int = 0  # 0 where rows of several documents are measured
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
        """Comparable across tokenizers."""
        return self.nats / math.log(2) / max(self.n_bytes, 1)


def bits_per_byte(
    model: Model, logits: Logits, documents: Iterable[tuple[Document, str]]
) -> dict[str, Total]:
    """Measure documents, which come with their sources. `logits` reads a whole window of ids."""
    totals: dict[str, Total] = defaultdict(Total)
    lengths = model.tokenizer.byte_lengths
    for document, source in progress(documents, "measuring", unit=" documents"):
        ids, counts = learned(document, model.tokenizer)
        nats = 0.0
        for start, first, end in windows(len(ids), model.config.block_size):
            at = first + np.flatnonzero(counts[first:end])  # the tokens that this window counts
            if len(at):
                nats += surprise(logits(ids[start : end - 1])[at - 1 - start], ids[at])
        n_bytes = int(lengths[ids[counts]].sum())
        totals[source] += Total(1, int(counts.sum()), n_bytes, nats)
    return dict(totals)


def learned(document: Document, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """A document's ids, and which of them count (n,). The first never does: nothing predicts it."""
    if isinstance(document, str):
        ids = np.array([*text_opening(tokenizer), *tokenizer.encode(document)])
        counts = np.ones(len(ids), bool)
    elif not tokenizer.is_ours:
        raise UserError("of a model made elsewhere only texts can be measured: give no chats")
    else:
        ids = np.array(render(document, tokenizer))
        counts = loss_mask(ids, tokenizer)
    counts[:1] = False
    return ids, counts


def windows(n: int, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Over n ids: (start, first, end), where ids[start:end - 1] are read for ids[first:end]."""
    first = 1
    while first < n:
        start = max(0, first - block_size // 2)
        end = min(start + block_size + 1, n)
        yield start, first, end
        first = end


def surprise(logits: np.ndarray, ids: np.ndarray) -> float:
    """The cost in nats of n ids, given the (n, V) logits before them."""
    return -float(np.take_along_axis(log_softmax(logits), ids[:, None], 1).sum())
