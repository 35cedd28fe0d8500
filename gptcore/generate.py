"""The one generation loop: prompt ids in, pieces of text out, over any Session.

    >>> from gptcore.onnx_session import load_model                      # doctest: +SKIP
    >>> model = load_model("models/default")                             # doctest: +SKIP
    >>> for piece in chat(model, [{"role": "user", "content": "Hi!"}]):  # doctest: +SKIP
    ...     print(piece.text, end="", flush=True)

A Session turns ids into logits and remembers what it has read: `prefill` takes a whole
prompt and computes only what differs from the last one, `step` takes one more token.
gptcore.onnx_session is the product, gptcore.nn.torch_session the slow reference.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.sampling import Sampling, sample
from gptcore.text.chat_template import Message, fit, text_opening
from gptcore.text.tokenizer import Tokenizer

Finish = Literal["end", "length", "context", "stopped"]
FINISH: dict[Finish, str] = {  # how a generation ends, in words
    "end": "the reply is complete",
    "length": "stopped at max tokens",
    "context": "stopped: the context is full",
    "stopped": "stopped by you",
}


class Interrupted(Exception):
    """A session ended a computation because its `stop` was set."""


class Stop(Protocol):
    """A flag that another thread sets to end a generation, even during a prefill."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Session(Protocol):
    """One conversation's state: the ids read so far and their keys and values."""

    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        """Read a prompt; (V,) logits of the token after it. Raises Interrupted."""

    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        """Read one more token; (V,) logits of the token after it. Raises Interrupted."""


class Model(Protocol):
    """What the functions below need: a loaded model that lends sessions."""

    config: ModelConfig
    tokenizer: Tokenizer

    def lease(self, ids: list[int]) -> AbstractContextManager[Session]: ...
    def recall(self, before: list[int], text: str) -> list[int] | None: ...
    def remember(self, before: list[int], text: str, ids: list[int]) -> None: ...


@dataclass(frozen=True)
class Piece:
    """The new text of one step, and the counts so far."""

    text: str  # new text; empty while a character is still incomplete
    n_prompt: int  # tokens of the prompt
    n_new: int  # tokens of the reply so far
    finish: Finish | None = None  # in the last piece: a key of FINISH
    token_id: int | None = None  # the new token; None where none was added
    n_dropped: int = 0  # how many of the oldest messages did not fit


def generate(
    session: Session,
    ids: list[int],
    tokenizer: Tokenizer,
    block_size: int,
    sampling: Sampling = Sampling(),
    max_tokens: int = 256,
    stop: Stop | None = None,
    slide: bool = False,
) -> Iterator[Piece]:
    """Yield a Piece for each token until the model ends its text, or max_tokens are there, or the
    context is full.

    Prompt and reply together never exceed block_size tokens. With `slide` they may: the model
    then reads the last block_size tokens again for each new one. Only the last piece has a
    `finish`. Closing the iterator ends the generation.

    Raises UserError if the prompt is empty or leaves no room for a reply, if max_tokens is not
    a whole number of at least 1, or if the model's output is not finite.
    """
    check_request(ids, block_size + slide, max_tokens)
    # A role token ends the reply, too: it would begin somebody else's message.
    ends = set(tokenizer.special.values())
    limit = max_tokens if slide else min(max_tokens, block_size - len(ids))
    rng, decoder = sampling.rng(), tokenizer.stream()
    reply: list[int] = []

    def last(finish: Finish, text: str = "", token_id: int | None = None) -> Piece:
        return Piece(text + decoder.finish(), len(ids), len(reply), finish, token_id)

    try:
        logits = session.prefill(ids, stop)
        while True:
            token_id = sample(logits, sampling, rng, reply)
            if token_id in ends:
                yield last("end")
                return
            reply.append(token_id)
            text = decoder.push(token_id)
            if len(reply) == limit:
                yield last("length" if limit == max_tokens else "context", text, token_id)
                return
            yield Piece(text, len(ids), len(reply), token_id=token_id)
            if len(ids) + len(reply) <= block_size:
                logits = session.step(token_id, stop)
            else:
                logits = session.prefill([*ids, *reply][-block_size:], stop)
    except Interrupted:
        yield last("stopped")


def chat(
    model: Model,
    messages: list[Message],
    sampling: Sampling = Sampling(),
    max_tokens: int = 256,
    stop: Stop | None = None,
) -> Iterator[Piece]:
    """Answer a conversation. When it outgrows the context, its oldest turns are left out.

    A quarter of the context (or max_tokens, if less) is kept free for the reply. Raises UserError
    before the first piece if max_tokens or a message is wrong, or if the last message is too long.
    """
    check_max_tokens(max_tokens)
    block_size = model.config.block_size
    budget = block_size - min(max_tokens, block_size // 4)
    ids, n_dropped = fit(messages, model.tokenizer, budget, model.recall)
    return pieces(model, ids, sampling, max_tokens, stop, n_dropped)


def complete(
    model: Model,
    text: str,
    sampling: Sampling = Sampling(),
    max_tokens: int = 256,
    stop: Stop | None = None,
) -> Iterator[Piece]:
    """Continue a plain text. It may outgrow the context: the model sees the last block_size tokens.

    Raises UserError before the first piece if max_tokens is wrong.
    """
    check_max_tokens(max_tokens)
    tokenizer, block_size = model.tokenizer, model.config.block_size
    # The model cannot see more than this, and a very long text would take long to encode.
    text = text[-tokenizer.max_token_bytes * block_size :]
    ids = [*text_opening(tokenizer), *tokenizer.encode(text)][-block_size:]
    return pieces(model, ids, sampling, max_tokens, stop, slide=True)


def pieces(
    model: Model,
    ids: list[int],
    sampling: Sampling,
    max_tokens: int,
    stop: Stop | None,
    n_dropped: int = 0,
    slide: bool = False,
) -> Iterator[Piece]:
    """Generate on a leased session, and let the model remember the reply's ids."""
    reply: list[int] = []
    text = ""
    with model.lease(ids) as session:
        shape = model.tokenizer, model.config.block_size
        for piece in generate(session, ids, *shape, sampling, max_tokens, stop, slide):
            reply += [] if piece.token_id is None else [piece.token_id]
            text += piece.text
            if piece.finish:
                model.remember(ids, text, reply)
            yield replace(piece, n_dropped=n_dropped)


def check_max_tokens(max_tokens: int) -> None:
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or not (max_tokens >= 1):
        raise UserError(f"max_tokens={max_tokens!r} must be a whole number of at least 1")


def check_request(ids: list[int], limit: int, max_tokens: int) -> None:
    """UserError for a prompt that leaves no room: past it a rotary model computes on, but badly."""
    check_max_tokens(max_tokens)
    if not (1 <= len(ids) < limit):
        raise UserError(
            f"the prompt has {len(ids)} tokens; the context holds {limit}, of which at "
            f"least one must be left for the reply: shorten it"
        )
