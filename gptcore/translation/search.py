"""Translation of a source text by beam search, over any Session.

    >>> from gptcore.translation.onnx import load_translator                  # doctest: +SKIP
    >>> model = load_translator("models/zh-en")                              # doctest: +SKIP
    >>> translate(model, "我想喝水。", beams=4).text                          # doctest: +SKIP
    'I want to drink water.'

A Session reads the source once; each step then reads the newest token of each hypothesis.
gptcore.translation.onnx is the fast implementation, gptcore.nn.torch_translator the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gptcore.checks import UserError, check_whole
from gptcore.config import Seq2SeqConfig
from gptcore.engine.sampling import NOT_FINITE, log_softmax
from gptcore.text.chat_template import check_length
from gptcore.text.tokenizer import Tokenizer

MAX_BEAMS = 16
LENGTH_PENALTY = 0.6  # alpha of arXiv 1609.08144, section 7


class Session(Protocol):
    """The state of one translation."""

    def begin(self, source_ids: list[int]) -> None:
        """Read the source's ids."""

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        """Return logits (n, V); row i continues row parents[i] of the last step with tokens[i]."""


class Model(Protocol):
    """A loaded translation model."""

    config: Seq2SeqConfig
    source_tokenizer: Tokenizer
    tokenizer: Tokenizer

    def session(self) -> Session: ...


@dataclass(frozen=True)
class Translation:
    """A translation, with the ids of both texts including special tokens."""

    text: str
    source_ids: list[int]
    target_ids: list[int]
    finished: bool  # False if the context was full before the sentence ended


def translate(model: Model, text: str, beams: int = 1) -> Translation:
    """Translate one sentence by beam search; beams=1 is greedy.

    Raises UserError if `text` is empty or too long, `beams` is invalid, or a logit is not finite.
    """
    source_ids = read_source(model, text)
    check_beams(beams)
    start, end = target_ends(model.tokenizer)
    session = model.session()
    session.begin(source_ids)
    ids = beam_search(session, start, end, beams, model.config.block_size)
    finished = ids[-1:] == [end]
    return Translation(model.tokenizer.decode(ids), source_ids, [start, *ids], finished)


def check_beams(beams: int) -> None:
    check_whole("beams", beams, 1, MAX_BEAMS)


def read_source(model: Model, text: str) -> list[int]:
    """Return the ids of a source text with the token that ends it; raises UserError."""
    text = text.strip()
    if not text:
        raise UserError("the text is empty: type a sentence first")
    block_size = model.config.block_size
    check_length(text, model.source_tokenizer, block_size, "text")
    ids = encode_source(text, model.source_tokenizer)
    if len(ids) > block_size:
        raise UserError(
            f"the text has {len(ids)} tokens, and the model reads {block_size}: shorten it, or "
            f"translate it sentence by sentence"
        )
    return ids


def encode_source(text: str, tokenizer: Tokenizer) -> list[int]:
    return [*tokenizer.encode(text.strip()), tokenizer.special["<|end|>"]]


def target_ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the tokens that begin and end every target."""
    return tokenizer.special["<|endoftext|>"], tokenizer.special["<|end|>"]


def beam_search(session: Session, start: int, end: int, beams: int, limit: int) -> list[int]:
    """Return the ids of the best hypothesis (arXiv 1609.08144, section 7), `end` included.

    A hypothesis ends when its `end` is among the `beams` best continuations of all. The search
    ends when `beams` hypotheses have ended, or at `limit` tokens. One beam gives greedy decoding.
    Raises UserError if a logit is not finite.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]  # log probability, ids
    done: list[tuple[float, list[int]]] = []
    tokens, parents = [start], [0]
    for length in range(1, limit + 1):
        logits = session.step(tokens, parents)
        if not np.isfinite(logits).all():
            raise UserError(NOT_FINITE)
        scores = log_softmax(logits) + np.array([[score] for score, _ in live])
        best = largest(scores.ravel(), 2 * beams)
        previous, live, tokens, parents = live, [], [], []
        for rank, flat in enumerate(best):
            parent, token = divmod(int(flat), logits.shape[1])
            score, ids = float(scores[parent, token]), [*previous[parent][1], token]
            if token == end:
                if rank < beams:
                    done.append((score / penalty(length), ids))
            elif len(live) < beams:
                live.append((score, ids))
                tokens.append(token)
                parents.append(parent)
        if len(done) >= beams:
            break
    unfinished = [(score / penalty(length), ids) for score, ids in live]
    return max(done or unfinished, key=lambda hypothesis: hypothesis[0])[1]


def penalty(length: int) -> float:
    """Return the divisor of a log probability; without it short hypotheses would win."""
    return ((5 + length) / 6) ** LENGTH_PENALTY


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """Return the indices of the n largest values, largest first; of equal ones the first."""
    n = min(n, len(values))
    limit = np.partition(values, -n)[-n]
    above, equal = np.flatnonzero(values > limit), np.flatnonzero(values == limit)
    chosen = np.concatenate([above, equal[: n - len(above)]])
    return chosen[np.lexsort((chosen, -values[chosen]))]
