"""Generation: prompt ids in, pieces of text out.

    >>> from gptcore.model import load_model                             # doctest: +SKIP
    >>> model = load_model("models/default")                             # doctest: +SKIP
    >>> for piece in chat(model, [{"role": "user", "content": "Hi!"}]):  # doctest: +SKIP
    ...     print(piece.text, end="", flush=True)

`chat` and `complete` make a Request, which a Model answers: the scheduler, many at a time.
`generate` is the loop for one request over a Session, and the slow reference: a Session turns ids
into logits and keeps a cache of what it has read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from gptcore.checks import TooLong, UserError, check_whole
from gptcore.config import ModelConfig
from gptcore.engine.sampling import Likelihood, Sampling, likelihoods, sample
from gptcore.engine.schemas.grammar import Grammar, json_grammar
from gptcore.text.chat_template import Message, cut, end_of_text, fit, text_opening
from gptcore.text.tokenizer import Tokenizer

# How a reply ended: by itself, at max_tokens, with the context full, stopped, or out of time.
Finish = Literal["end", "length", "context", "stopped", "late"]
SCORED_TOGETHER = 16  # tokens whose probabilities are computed at once: their logits fit a cache


class Stop(Protocol):
    """A flag that another thread sets to end a generation, such as a threading.Event."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Session(Protocol):
    """One conversation's state: the ids read so far and their keys and values."""

    def prefill(self, ids: list[int]) -> np.ndarray:
        """Read a prompt and return the logits (V,) of the next token."""

    def step(self, token_id: int) -> np.ndarray:
        """Read one more token and return the logits (V,) of the next."""


@dataclass(frozen=True)
class Request:
    """A prompt, and what is wanted of its continuation.

    With `slide` a text may exceed the context: each time it is full, the model reads the later half
    of it again, after what opens it, and goes on from there.
    """

    ids: list[int]
    sampling: Sampling = Sampling()  # noqa: RUF009 (it is frozen)
    max_tokens: int = 256
    slide: bool = False
    n_dropped: int = 0  # number of the oldest messages left out because they did not fit
    stops: tuple[str, ...] = ()  # texts that end the reply and are not part of it
    # If given: log probabilities of each token, and of the n_top likeliest in its place.
    n_top: int | None = None
    echo: bool = False  # the prompt comes before the reply; max_tokens may be 0
    begun: tuple[int, ...] = ()  # ids with which the reply begins, to be continued
    is_turn: bool = False  # of a conversation, whose next turn recalls the reply
    grammar: Grammar | None = None  # what the reply must be, from its beginning

    def check(self, block_size: int) -> None:
        """Raise UserError if the prompt is empty or leaves no room for one new token.

        Beyond its context a rotary model still computes, but its text is bad.
        """
        is_read_alone = self.echo and self.max_tokens == 0
        if not is_read_alone:
            check_max_tokens(self.max_tokens)
        n = len(self.ids) + len(self.begun)
        if n == 0:
            raise UserError("the prompt is empty: give it at least one token")
        if n >= block_size + (self.slide or is_read_alone):
            if is_read_alone:
                raise TooLong(
                    f"the prompt has {n} tokens; the context holds {block_size}: shorten it"
                )
            raise TooLong(
                f"the prompt has {n} tokens; the context holds {block_size}, of which "
                f"at least one must be left for the reply: shorten it"
            )

    @property
    def is_scored(self) -> bool:
        """Whether the probabilities of the prompt's tokens are wanted."""
        return self.echo and self.n_top is not None

    def bound(self, grammar: Grammar) -> "Request":
        """Return the request bound to a grammar; raises UserError if what is begun does not fit."""
        grammar.begin(self.begun)
        return replace(self, grammar=grammar)


@dataclass(frozen=True)
class Piece:
    """The new text of one or more steps, and the token counts so far."""

    text: str  # new text; empty while a character is incomplete
    n_prompt: int  # tokens of the prompt, and of the reply that was begun
    n_new: int  # tokens of the reply so far
    finish: Finish | None = None  # in the last piece, None before
    # The new tokens, with those of a stop text, without a special token that ends the reply.
    token_ids: tuple[int, ...] = ()
    n_dropped: int = 0  # number of the oldest messages left out because they did not fit
    # If they are wanted: those of the new tokens, and of the token that ends the reply.
    likelihoods: tuple[Likelihood, ...] = ()
    prompt: tuple[Likelihood, ...] = ()  # of an echo's prompt, in the first piece


class Model(Protocol):
    """A loaded model, as the functions below need it."""

    config: ModelConfig
    tokenizer: Tokenizer

    def recall(self, before: list[int], text: str) -> list[int] | None:
        """Return the ids that a reply was generated as, given the ids before it; None: unknown."""

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        """Yield the reply to a request. Closing the iterator ends the generation."""


class Reply:
    """The growing reply to one request: its tokens, its text, and when it ends."""

    def __init__(self, request: Request, tokenizer: Tokenizer, block_size: int):
        request.check(block_size)
        self.request, self.block_size = request, block_size
        self.opening = text_opening(tokenizer)
        # A role token also ends the reply, because it would begin the next speaker's message.
        self.ends = set(tokenizer.special.values())
        n_begun = len(request.begun)
        room = block_size - len(request.ids) - n_begun
        self.n_most = request.max_tokens if request.slide else min(request.max_tokens, room)
        self.rng, self.decoder = request.sampling.rng(), tokenizer.stream()
        self.grammar = request.grammar.begin(request.begun) if request.grammar else None
        self.ids = [*request.begun]
        self.text = "".join(map(self.decoder.push, request.begun))
        self.finish: Finish | None = None
        self.is_cut = False  # whether a stop text and what followed it was removed
        # Of the tokens since the last piece: how likely they were, or their ids and logits until
        # that is computed.
        self.likelihoods: list[Likelihood] = []
        self.unscored: list[tuple[int, np.ndarray]] = []
        is_told = request.echo and not request.is_scored
        self.prompt = [Likelihood(i, None) for i in request.ids] if is_told else []
        self.last: np.ndarray | None = None  # logits after the last id of the prompt that was read
        # Tokens and characters in the pieces so far; what was begun is known.
        self.n_taken, self.n_taken_text = n_begun, len(self.text)

    @property
    def n_new(self) -> int:
        return len(self.ids) - len(self.request.begun)

    def allowed(self, logits: np.ndarray) -> np.ndarray:
        """Return logits (V,) from which to choose the next token; raises as Grammar.restrict."""
        return self.grammar.restrict(logits) if self.grammar else logits

    def add(self, token_id: int, logits: np.ndarray) -> None:
        """Add the next token, and the model's logits (V,); `finish` is set if it ends the reply."""
        if self.request.n_top is not None:
            self.unscored.append((token_id, logits.copy()))
            if len(self.unscored) == SCORED_TOGETHER:
                self.score()
        if token_id in self.ends:
            self.end("end")
            return
        self.ids.append(token_id)
        if self.grammar:
            self.grammar.add(token_id)
        n_before = len(self.text)
        self.text += self.decoder.push(token_id)
        if self.request.stops and self.end_at_stop(n_before):
            return
        if self.n_new == self.n_most:
            self.end("length" if self.n_most == self.request.max_tokens else "context")

    def score_prompt(self, ids: Sequence[int], logits: np.ndarray) -> None:
        """Record the likelihoods of the prompt's next ids; logits (n, V) follow each of them."""
        before, self.last = self.last, logits[-1]
        if before is None:
            self.prompt.append(Likelihood(ids[0], None))
        else:
            self.prompt += likelihoods(ids[:1], before[None], self.request.n_top or 0)
        self.prompt += likelihoods(ids[1:], logits[:-1], self.request.n_top or 0)

    def end_at_stop(self, n_before: int) -> bool:
        """End the reply before the first stop text that ends after `n_before` characters."""
        starts = (self.text.find(s, max(n_before - len(s) + 1, 0)) for s in self.request.stops)
        found = [at for at in starts if at >= 0]
        if found:
            self.text, self.finish, self.is_cut = self.text[: min(found)], "end", True
        return self.is_cut

    def end(self, finish: Finish) -> None:
        self.text += self.decoder.finish()
        self.finish = finish

    def take(self) -> Piece:
        """Return what was added since the last call, but no text that may begin a stop text."""
        end = len(self.text) - (0 if self.finish else self.n_held_back())
        n_begun = len(self.request.begun)
        self.score()
        piece = Piece(
            text=self.text[self.n_taken_text : end],
            n_prompt=len(self.request.ids) + n_begun,
            n_new=self.n_new,
            finish=self.finish,
            token_ids=tuple(self.ids[self.n_taken :]),
            n_dropped=self.request.n_dropped,
            likelihoods=tuple(self.likelihoods),
            prompt=tuple(self.prompt) if self.n_taken == n_begun else (),
        )
        self.n_taken, self.n_taken_text = len(self.ids), max(end, self.n_taken_text)
        self.likelihoods = []
        return piece

    def score(self) -> None:
        """Compute the likelihoods of the tokens whose logits are kept."""
        if self.unscored:
            ids, logits = zip(*self.unscored)
            self.likelihoods += likelihoods(ids, np.stack(logits), self.request.n_top or 0)
            self.unscored = []

    def slid(self) -> list[int]:
        """Return the end, half a context long, of a text that has filled its context."""
        text = [*self.request.ids, *self.ids]
        return end_of_text(text, self.opening, max(self.block_size // 2, 1))

    def n_held_back(self) -> int:
        """Return the length of the longest end of the text with which a stop text begins."""
        starts = (
            n
            for stop in self.request.stops
            for n in range(1, min(len(stop), len(self.text) + 1))
            if self.text.endswith(stop[:n])
        )
        return max(starts, default=0)


def generate(session: Session, reply: Reply, stop: Stop | None = None) -> Iterator[Piece]:
    """Yield a Piece per token until the text ends, or max_tokens or block_size is reached.

    Prompt and reply together never exceed block_size tokens, unless the request slides. Only the
    last piece has a `finish`. Raises UserError if no logit is finite, or for an echo.
    """
    request, block_size = reply.request, reply.block_size
    if request.echo:
        raise UserError("echo=True: a session cannot return the prompt; use a loaded model")
    ids = [*request.ids, *request.begun]
    logits, n_read = session.prefill(ids), len(ids)
    while not (stop and stop.is_set()):
        allowed = reply.allowed(logits)
        reply.add(sample(allowed, request.sampling, reply.rng.random(), reply.ids), logits)
        yield reply.take()
        if reply.finish:
            return
        if n_read < block_size:
            logits, n_read = session.step(reply.ids[-1]), n_read + 1
        else:
            ids = reply.slid()
            logits, n_read = session.prefill(ids), len(ids)
    reply.end("stopped")
    yield reply.take()


def chat(
    model: Model,
    messages: list[Message],
    sampling: Sampling = Sampling(),
    max_tokens: int = 256,
    stop: Stop | None = None,
    schema: Any = None,
) -> Iterator[Piece]:
    """Yield the reply to a conversation. Old turns are left out if it exceeds the context.

    A quarter of the context (or max_tokens, if less) is reserved for the reply. With a JSON
    `schema`, a reply that ends by itself is JSON of it. Raises UserError before the first piece if
    max_tokens, a message or the schema is invalid, or the last message is too long.
    """
    request = chat_request(model, messages, sampling, max_tokens)
    grammar = None if schema is None else json_grammar(schema, model.tokenizer)
    return model.answer(request.bound(grammar) if grammar else request, stop)


def chat_request(
    model: Model,
    messages: list[Message],
    sampling: Sampling,
    max_tokens: int,
    begun: Sequence[int] = (),
) -> Request:
    """Return the request for the reply to a conversation, which may be begun already.

    What is begun uses the room that is reserved for the reply, so a Continue keeps the prompt that
    the reply began with; more old messages are left out only if not one more token would fit.
    Raises UserError as `chat` does, or if what is begun leaves no room.
    """
    check_max_tokens(max_tokens)
    size, tokenizer, recall = model.config.block_size, model.tokenizer, model.recall
    ids, n_dropped = fit(messages, tokenizer, size - min(max_tokens, size // 4), recall)
    left = size - len(begun) - 1
    if len(ids) > left:
        ids, n_dropped = cut(messages, tokenizer, left, prompt=True, recall=recall)
    if len(ids) > left:
        raise TooLong(
            f"the reply that is begun has {len(begun)} tokens and the prompt {len(ids)}; the "
            f"context holds {size}, and one must be left: ask for a new reply"
        )
    return Request(ids, sampling, max_tokens, n_dropped=n_dropped, begun=tuple(begun), is_turn=True)


def complete(
    model: Model,
    text: str,
    sampling: Sampling = Sampling(),
    max_tokens: int = 256,
    stop: Stop | None = None,
) -> Iterator[Piece]:
    """Yield the continuation of a plain text, seeing at most the last block_size tokens of it.

    Raises UserError before the first piece if max_tokens is invalid.
    """
    return model.answer(completion_request(model, text, sampling, max_tokens), stop)


def completion_request(model: Model, text: str, sampling: Sampling, max_tokens: int) -> Request:
    """Return the request for the continuation of a text; raises UserError as `complete` does."""
    check_max_tokens(max_tokens)
    tokenizer, block_size = model.tokenizer, model.config.block_size
    # The model sees no more than this, and encoding a very long text would take long.
    text = text[-tokenizer.max_token_bytes * block_size :]
    opening = text_opening(tokenizer)
    ids = end_of_text([*opening, *tokenizer.encode(text)], opening, block_size)
    return Request(ids, sampling, max_tokens, slide=True)


def check_max_tokens(max_tokens: int, name: str = "max_tokens") -> None:
    check_whole(name, max_tokens, low=1)
