"""The generation loop: prompt ids in, pieces of text out, over any Session.

    >>> from gptcore.onnx_session import load_model                      # doctest: +SKIP
    >>> model = load_model("models/default")                             # doctest: +SKIP
    >>> for piece in chat(model, [{"role": "user", "content": "Hi!"}]):  # doctest: +SKIP
    ...     print(piece.text, end="", flush=True)

A Session turns ids into logits and keeps a cache of what it has read. `prefill` reads a whole
prompt and computes only the part that differs from the last one. `step` reads one more token.
gptcore.onnx_session is the fast implementation, gptcore.nn.torch_session the slow reference.
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
FINISH: dict[Finish, str] = {  # the text shown for each way a generation can end
    "end": "the reply is complete",
    "length": "stopped at max tokens",
    "context": "stopped: the context is full",
    "stopped": "stopped by you",
}


class Interrupted(Exception):
    """Raised when a session ended a computation because its `stop` was set."""


class Stop(Protocol):
    """A flag that another thread sets to end a generation, even during a prefill."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Session(Protocol):
    """One conversation's state: the ids read so far and their keys and values."""

    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        """Read a prompt and return the logits (V,) of the next token; raises Interrupted."""

    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        """Read one more token and return the logits (V,) of the next; raises Interrupted."""


class Model(Protocol):
    """A loaded model that lends sessions, as the functions below need it."""

    config: ModelConfig
    tokenizer: Tokenizer

    def lease(self, ids: list[int]) -> AbstractContextManager[Session]: ...
    def recall(self, before: list[int], text: str) -> list[int] | None: ...
    def remember(self, before: list[int], text: str, ids: list[int]) -> None: ...


@dataclass(frozen=True)
class Piece:
    """The new text of one step, and the token counts so far."""

    text: str  # new text; empty while a character is incomplete
    n_prompt: int  # tokens of the prompt
    n_new: int  # tokens of the reply so far
    finish: Finish | None = None  # a key of FINISH in the last piece, None before
    token_id: int | None = None  # the new token; None if the step added none
    n_dropped: int = 0  # number of the oldest messages left out because they did not fit


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
    """Yield a Piece per token until the text ends, or max_tokens or block_size is reached.

    Prompt and reply together never exceed block_size tokens, unless `slide` is set. With `slide`
    the model reads the last block_size tokens again for each new token. Only the last piece has
    a `finish`. Closing the iterator ends the generation.

    Raises UserError if the prompt is empty or leaves no room for a reply, if max_tokens is not
    a whole number of at least 1, or if a logit is not finite.
    """
    check_request(ids, block_size + slide, max_tokens)
    # A role token also ends the reply, because it would begin the next speaker's message.
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
    """Yield the reply to a conversation. Old turns are left out if it exceeds the context.

    A quarter of the context (or max_tokens, if less) is reserved for the reply. Raises UserError
    before the first piece if max_tokens or a message is invalid, or the last message is too long.
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
    """Yield the continuation of a plain text, seeing only the last block_size tokens of it.

    Raises UserError before the first piece if max_tokens is invalid.
    """
    check_max_tokens(max_tokens)
    tokenizer, block_size = model.tokenizer, model.config.block_size
    # The model sees no more than this, and encoding a very long text would take long.
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
    """Generate on a leased session, then let the model remember the ids of the reply."""
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
    """Raise UserError if the prompt is empty or leaves no room for one new token.

    Beyond its context a rotary model still computes, but its text is bad.
    """
    check_max_tokens(max_tokens)
    if not (1 <= len(ids) < limit):
        raise UserError(
            f"the prompt has {len(ids)} tokens; the context holds {limit}, of which at "
            f"least one must be left for the reply: shorten it"
        )
