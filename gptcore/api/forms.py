"""Answers in OpenAI's forms: whole, or in parts for a stream.

All forms have the methods of Form. An answer has several choices: one for each reply.

>>> form = TextForm("nano", tokenizer, asked)                                      # doctest: +SKIP
>>> form.parts(0, Piece("Hi", 3, 1))[0]["choices"]                                 # doctest: +SKIP
[{'index': 0, 'text': 'Hi', 'logprobs': None, 'finish_reason': None}]
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gptcore.api.bodies import ParsedCall
from gptcore.api.functions import CallWriter, Json
from gptcore.engine.generate import Finish, Piece
from gptcore.engine.sampling import Likelihood
from gptcore.text.tokenizer import StreamDecoder, Tokenizer

FINISH_REASON: dict[Finish | None, str | None] = {
    None: None,
    "end": "stop",
    "length": "length",
    "context": "length",
    "late": "length",
    "stopped": "length",  # which nobody reads: the client went away
}


class Usage:
    """The tokens of all prompts and replies of one call."""

    def __init__(self) -> None:
        self.n_prompt: dict[int, int] = {}
        self.n_new: dict[int, int] = {}

    def add(self, i: int, piece: Piece) -> None:
        self.n_prompt[i], self.n_new[i] = piece.n_prompt, piece.n_new

    def json(self, n: int) -> Json:
        """Return the counts; each prompt has `n` replies and is counted once."""
        n_prompt = sum(count for i, count in self.n_prompt.items() if i % n == 0)
        n_new = sum(self.n_new.values())
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_new,
            "total_tokens": n_prompt + n_new,
        }


class Form(ABC):
    """The form of one answer, to a call that was read as `asked`."""

    done = "data: [DONE]\n\n"  # the last line of a stream

    def __init__(self, model: str, tokenizer: Tokenizer, asked: ParsedCall):
        self.model, self.tokenizer, self.asked = model, tokenizer, asked

    @abstractmethod
    def whole(self, replies: list[list[Piece]], usage: Json) -> Json:
        """Return the whole answer, of the pieces of each reply."""

    @abstractmethod
    def opening(self) -> list[Json]:
        """Return the events with which a stream begins."""

    @abstractmethod
    def parts(self, i: int, piece: Piece) -> list[Json]:
        """Return the events of a piece of the reply `i`."""

    @abstractmethod
    def closing(self, usage: Json) -> list[Json]:
        """Return the events with which a stream ends."""

    def error(self, message: str, kind: str, code: str | None = None) -> Json:
        """Return the event of an error in a stream."""
        return error_json(message, kind, code)

    def likelihoods(self, tokens: Iterable[Likelihood]) -> list[Json]:
        """Return the probabilities of the tokens of a message, and of their alternatives."""
        return [
            {
                **self.token(t.token_id, t.logprob),
                "top_logprobs": [self.token(*pair) for pair in t.top],
            }
            for t in tokens
            if t.token_id not in self.tokenizer.special.values()
        ]

    def token(self, token_id: int, logprob: float | None) -> Json:
        named = token_name(self.tokenizer, token_id)
        as_bytes = [*self.tokenizer.token_bytes(token_id)]
        return {"token": named, "logprob": logprob, "bytes": as_bytes}


class ChoicesForm(Form):
    """What /v1/chat/completions and /v1/completions share: the fields around the choices."""

    kind = part_kind = prefix = ""

    def __init__(self, model: str, tokenizer: Tokenizer, asked: ParsedCall):
        super().__init__(model, tokenizer, asked)
        self.common = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        # A stream that reports its usage has null in its place until the last event.
        self.unknown: Json = {"usage": None} if asked.include_usage else {}

    @abstractmethod
    def part(self, i: int, piece: Piece) -> Json:
        """Return the event of a piece, or of its end."""

    def opening(self) -> list[Json]:
        return []

    def parts(self, i: int, piece: Piece) -> list[Json]:
        return [self.part(i, part) | self.unknown for part in end_apart(piece)]

    def closing(self, usage: Json) -> list[Json]:
        told = self.around(self.part_kind, [], usage=usage)
        return [told] if self.asked.include_usage else []

    def around(self, kind: str, choices: list[Json], **more: Any) -> Json:
        return {**self.common, "object": kind, "choices": choices, **more}


class ChatForm(ChoicesForm):
    """/v1/chat/completions."""

    kind, part_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, model: str, tokenizer: Tokenizer, asked: ParsedCall):
        super().__init__(model, tokenizer, asked)
        self.functions = asked.functions
        # Of each reply of a stream.
        self.calls: defaultdict[int, CallWriter] = defaultdict(partial(CallWriter, self.functions))

    def finish_reason(self, finish: Finish | None) -> str | None:
        return "tool_calls" if finish == "end" and self.functions else FINISH_REASON[finish]

    def whole(self, replies: list[list[Piece]], usage: Json) -> Json:
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", **self.said(joined(reply)), "refusal": None},
                "logprobs": self.logprobs([x for piece in reply for x in piece.likelihoods]),
                "finish_reason": self.finish_reason(reply[-1].finish),
            }
            for i, reply in enumerate(replies)
        ]
        return self.around(self.kind, choices, usage=usage)

    def said(self, text: str) -> Json:
        """Return the fields that hold the text, or the call, in the message of a whole reply."""
        if not self.functions:
            return {"content": text}
        call = CallWriter(self.functions).push(text)
        return {"content": None, "tool_calls": [call]} if call else {"content": None}

    def opening(self) -> list[Json]:
        """Return the parts that name the speaker of each reply."""
        delta = {"role": "assistant", "content": None if self.functions else ""}
        replies = range(len(self.asked.requests))
        choices = [{"index": i, "delta": delta, "finish_reason": None} for i in replies]
        return [self.around(self.part_kind, [choice], **self.unknown) for choice in choices]

    def part(self, i: int, piece: Piece) -> Json:
        choice = {
            "index": i,
            "delta": self.new(i, piece.text) if piece.text or not piece.finish else {},
            "logprobs": self.logprobs(piece.likelihoods),
            "finish_reason": self.finish_reason(piece.finish),
        }
        return self.around(self.part_kind, [choice])

    def new(self, i: int, text: str) -> Json:
        """Return what is new of a streamed message."""
        if not self.functions:
            return {"content": text}
        call = self.calls[i].push(text)
        return {"tool_calls": [{"index": 0, **call}]} if call else {}

    def logprobs(self, tokens: Iterable[Likelihood]) -> Json | None:
        content = self.likelihoods(tokens)
        return {"content": content, "refusal": None} if content else None


class TextForm(ChoicesForm):
    """/v1/completions. With `echo` the texts of the prompts come first.

    The probabilities include that of the token that ends a text: programs which score texts ask
    for one more token and leave out the last.
    """

    kind = part_kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, model: str, tokenizer: Tokenizer, asked: ParsedCall):
        super().__init__(model, tokenizer, asked)
        self.wants_logprobs = asked.requests[0].n_top is not None
        self.streams: defaultdict[int, StreamDecoder] = defaultdict(tokenizer.stream)
        self.offsets: Counter[int] = Counter()  # characters of each choice so far

    def whole(self, replies: list[list[Piece]], usage: Json) -> Json:
        choices = [self.choice(i, merged(reply)) for i, reply in enumerate(replies)]
        return self.around(self.kind, choices, usage=usage)

    def part(self, i: int, piece: Piece) -> Json:
        return self.around(self.part_kind, [self.choice(i, piece)])

    def choice(self, i: int, piece: Piece) -> Json:
        before = self.tokenizer.decode([t.token_id for t in piece.prompt])
        return {
            "index": i,
            "text": before + piece.text,
            "logprobs": self.logprobs(i, [*piece.prompt, *piece.likelihoods]),
            "finish_reason": FINISH_REASON[piece.finish],
        }

    def logprobs(self, i: int, tokens: list[Likelihood]) -> Json | None:
        if not (tokens and self.wants_logprobs):
            return None
        offsets = []
        for t in tokens:
            offsets.append(self.offsets[i])
            self.offsets[i] += len(self.streams[i].push(t.token_id))
        return {
            "tokens": [token_name(self.tokenizer, t.token_id) for t in tokens],
            "token_logprobs": [t.logprob for t in tokens],
            "top_logprobs": [
                {token_name(self.tokenizer, j): logprob for j, logprob in t.top} if t.top else None
                for t in tokens
            ],
            "text_offset": offsets,
        }


def end_apart(piece: Piece) -> Iterator[Piece]:
    """Yield a piece, and its end as a separate piece.

    OpenAI's streams do so, and some clients ignore the text of an event that has an end.
    """
    if piece.text or piece.likelihoods or piece.prompt or piece.finish is None:
        yield replace(piece, finish=None)
    if piece.finish is not None:
        yield Piece("", piece.n_prompt, piece.n_new, piece.finish)


def joined(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def merged(pieces: list[Piece]) -> Piece:
    """Return the pieces of one reply as one."""
    last = pieces[-1]
    return Piece(
        joined(pieces),
        last.n_prompt,
        last.n_new,
        last.finish,
        likelihoods=tuple(x for piece in pieces for x in piece.likelihoods),
        prompt=pieces[0].prompt,
    )


def token_name(tokenizer: Tokenizer, token_id: int) -> str:
    """Return a token's text; of a part of a character its bytes, in OpenAI's notation."""
    named = tokenizer.name(token_id)
    is_text = tokenizer.token_bytes(token_id) in (named.encode(), b"")  # a special one has none
    return named if is_text else f"bytes:{named}"


def error_json(message: str, kind: str, code: str | None) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
