"""Translation: a source text in, its likeliest target text out, by beam search over any Session.

    >>> from gptcore.translation.onnx import load_translator                  # doctest: +SKIP
    >>> model = load_translator("models/zh-en")                              # doctest: +SKIP
    >>> translate(model, "我想喝水。", beams=4).text                          # doctest: +SKIP
    'I want to drink water.'

A Session reads the source once; each step then takes the newest token of each hypothesis.
gptcore.translation.onnx is the product, gptcore.nn.torch_translator the slow reference.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.sampling import log_softmax
from gptcore.text.chat_template import check_length
from gptcore.text.tokenizer import Tokenizer

MAX_BEAMS = 16
LENGTH_PENALTY = 0.6  # alpha of arXiv 1609.08144, section 7


class Session(Protocol):
    """One translation's state."""

    def begin(self, source_ids: list[int]) -> None:
        """Read the source."""

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        """(n, V) logits: row i continues the last step's row parents[i] with tokens[i]."""


class Model(Protocol):
    """A loaded translation model."""

    config: Seq2SeqConfig
    source_tokenizer: Tokenizer
    tokenizer: Tokenizer

    def session(self) -> AbstractContextManager[Session]: ...


@dataclass(frozen=True)
class Translation:
    """The text, and the ids with their special tokens, which the picture of the attention shows."""

    text: str
    source_ids: list[int]
    target_ids: list[int]
    finished: bool  # False if the context was full before the model ended the sentence


def translate(model: Model, text: str, beams: int = 1) -> Translation:
    """Translate one sentence. beams=1 is greedy: always the likeliest next token.

    UserError if the text is empty or longer than the context.
    """
    source_ids = read_source(model, text)
    check_beams(beams)
    start, end = target_ends(model.tokenizer)
    with model.session() as session:
        session.begin(source_ids)
        ids = beam_search(session, start, end, beams, model.config.block_size)
    finished = ids[-1:] == [end]
    return Translation(model.tokenizer.decode(ids), source_ids, [start, *ids], finished)


def check_beams(beams: int) -> None:
    if isinstance(beams, bool) or not isinstance(beams, int) or not (1 <= beams <= MAX_BEAMS):
        raise UserError(f"beams={beams!r} must be a whole number from 1 to {MAX_BEAMS}")


def read_source(model: Model, text: str) -> list[int]:
    """The ids of a source text and the token that ends it."""
    if not text.strip():
        raise UserError("there is nothing to translate: type a sentence first")
    block_size = model.config.block_size
    check_length(text, model.source_tokenizer, block_size, "text")
    ids = encode_source(text, model.source_tokenizer)
    if len(ids) > block_size:
        raise UserError(
            f"the text has {len(ids)} tokens and the model reads {block_size}: shorten it, or "
            f"translate it sentence by sentence"
        )
    return ids


def encode_source(text: str, tokenizer: Tokenizer) -> list[int]:
    return [*tokenizer.encode(text.strip()), tokenizer.special["<|end|>"]]


def target_ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """The tokens that begin and end every target."""
    return tokenizer.special["<|endoftext|>"], tokenizer.special["<|end|>"]


def beam_search(session: Session, start: int, end: int, beams: int, limit: int) -> list[int]:
    """The ids of the best hypothesis found (arXiv 1609.08144, section 7), `end` included.

    A hypothesis ends if `end` is among its `beams` best continuations; the search ends when
    `beams` hypotheses have, or at `limit` tokens. With one beam that is greedy decoding.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]  # log probability, ids
    done: list[tuple[float, list[int]]] = []
    tokens, parents = [start], [0]
    for length in range(1, limit + 1):
        logits = session.step(tokens, parents)
        if not np.isfinite(logits).all():
            raise UserError("the model's output is not finite: the model folder is damaged")
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
    """What a hypothesis' log probability is divided by; without it short hypotheses would win."""
    return ((5 + length) / 6) ** LENGTH_PENALTY


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n largest values, the largest first; of equals the first one."""
    n = min(n, len(values))
    limit = np.partition(values, -n)[-n]
    above, equal = np.flatnonzero(values > limit), np.flatnonzero(values == limit)
    chosen = np.concatenate([above, equal[: n - len(above)]])
    return chosen[np.lexsort((chosen, -values[chosen]))]
