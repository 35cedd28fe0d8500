"""/v1/responses, OpenAI's newer endpoint: a call is read as a chat, and answered in its own form.

>>> [*read_input("Hi").values()]
[{'role': 'user', 'content': 'Hi'}]

The server keeps no response: a client sends the whole conversation each time.
"""

import time
import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

from gptcore.api.bodies import MOST_TOP, ParsedCall, chat_call, read_count, read_fields, read_format
from gptcore.api.forms import FINISH_REASON, Form
from gptcore.api.functions import CallWriter, Json, demanded
from gptcore.checks import UserError, brief, check_type
from gptcore.engine.generate import Finish, Piece
from gptcore.model import OnnxModel
from gptcore.text.tokenizer import Tokenizer
from gptcore.typed_json import read_as

LOGPROBS = "message.output_text.logprobs"  # what `include` names them
# Fields for what OpenAI's servers keep, and what a client of this one does instead.
KEPT = {
    "previous_response_id": "send the whole conversation as input",
    "conversation": "send the whole conversation as input",
    "prompt": "send its text as instructions",
    "background": "leave it out, or take stream",
}
# Fields of the call that the answer repeats, and their values if the call has none.
REPEATED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}


def read_response(body: Any, model: OnnxModel) -> ParsedCall:
    """Read the body of /v1/responses; raises UserError naming what is wrong."""
    given, stops = read_fields(body, model)
    for name, remedy in KEPT.items():
        if value := body.get(name):
            raise UserError(f"this server keeps no responses ({name}={brief(value)}): {remedy}")
    if given.n > 1:
        raise UserError(f"n={given.n}: /v1/responses returns one reply: call again for another")
    check_repeated(body)
    messages = read_input(body.get("input"))
    if told := body.get("instructions"):
        messages = {"instructions": {"role": "system", "content": told}} | messages
    include = body.get("include") or []
    check_type("include", include, list)
    n_top = read_count(body, "top_logprobs", MOST_TOP) or 0
    schema = read_text(body.get("text"))
    wanted_top = n_top if LOGPROBS in include else None
    call = chat_call(model, given, stops, messages, demanded(body), schema, wanted_top)
    own = {name: body[name] for name in REPEATED if body.get(name) is not None}
    return replace(call, repeated=REPEATED | own)


def check_repeated(body: Json) -> None:
    """Raise UserError if a field that the answer repeats has the wrong type."""
    for name, wanted in (("instructions", str), ("metadata", dict[str, str]), ("tools", list)):
        if body.get(name) is not None:
            read_as(wanted, body[name], name)
    for i, tool in enumerate(body.get("tools") or []):
        check_type(f"tool {i}", tool, dict)


def read_input(given: Any) -> dict[str, Any]:
    """Return the input as messages of /v1/chat/completions, by their names in errors.

    Raises UserError.
    """
    if isinstance(given, str):
        return {"input": {"role": "user", "content": given}}
    if not isinstance(given, list) or not given:
        raise UserError("input must be a text, or a list that is not empty")
    messages = {f"input {i}": message_of(f"input {i}", item) for i, item in enumerate(given)}
    return {where: message for where, message in messages.items() if message}


def message_of(where: str, item: Any) -> Json | None:
    """Return an item of the input as a message, or None for reasoning, which models never see."""
    if not isinstance(item, dict):
        raise UserError(f"{where} is not an object")
    kind = item.get("type")
    if kind in (None, "message"):
        return item
    if kind == "function_call":
        if not all(isinstance(item.get(key), str) for key in ("name", "arguments")):
            raise UserError(f"{where}: a function_call needs a name and arguments, both texts")
        call = {"id": item.get("call_id"), "function": item}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "function_call_output":
        output, call_id = item.get("output"), item.get("call_id")
        return {"role": "tool", "content": output, "tool_call_id": call_id}
    if kind == "reasoning":
        return None
    raise UserError(
        f"{where} is of the type {brief(kind)}, which this server does not know: use message, "
        "function_call, function_call_output"
    )


def read_text(given: Any) -> Any:
    """Return the JSON schema that `text` demands, not yet checked; None if any text will do."""
    if given is None:
        return None
    check_type("text", given, dict)
    form = given.get("format")
    # A schema stands beside the type here, and below it in /v1/chat/completions.
    return read_format(
        "text.format", {"json_schema": form, **form} if isinstance(form, dict) else form
    )


class Event(NamedTuple):
    """An event of a stream, without its number."""

    kind: str  # without "response."
    content: Json


class ResponseForm(Form):
    """The form of /v1/responses: one item, which is a message or the call of a function."""

    done = ""  # the type of the last event marks the end

    def __init__(self, model: str, tokenizer: Tokenizer, asked: ParsedCall):
        super().__init__(model, tokenizer, asked)
        self.common = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            **asked.repeated,
            "error": None,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
        }
        self.item: MessageItem | CallItem
        self.item = CallItem(asked.functions) if asked.functions else MessageItem()
        self.finish: Finish | None = None
        self.n_events = 0

    def whole(self, replies: list[list[Piece]], usage: Json) -> Json:
        for piece in replies[0]:
            self.push(piece)
        return self.response(usage)

    def opening(self) -> list[Json]:
        begun = {"response": self.response()}
        return self.numbered(
            [Event("created", begun), Event("in_progress", begun), *self.item.opening()]
        )

    def parts(self, i: int, piece: Piece) -> list[Json]:
        return self.numbered(self.push(piece))

    def closing(self, usage: Json) -> list[Json]:
        ended = self.response(usage)
        return self.numbered(
            [*self.item.closing(self.status), Event(self.status, {"response": ended})]
        )

    def error(self, message: str, kind: str, code: str | None = None) -> Json:
        (event,) = self.numbered([Event("error", {"code": code or kind, "message": message})])
        return event | {"type": "error", "param": None}

    def push(self, piece: Piece) -> list[Event]:
        self.finish = piece.finish
        return self.item.push(piece.text, self.likelihoods(piece.likelihoods))

    def numbered(self, events: list[Event]) -> list[Json]:
        told = []
        for kind, content in events:
            number, self.n_events = self.n_events, self.n_events + 1
            told.append({"type": f"response.{kind}", "sequence_number": number, **content})
        return told

    @property
    def status(self) -> str:
        if self.finish is None:
            return "in_progress"
        return "completed" if FINISH_REASON[self.finish] == "stop" else "incomplete"

    def response(self, usage: Json | None = None) -> Json:
        """Return the response, as far as its reply is written."""
        status = self.status
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        item = self.item.json(status) if self.finish else None
        output = [item] if item else []
        return {
            **self.common,
            "status": status,
            "incomplete_details": details,
            "output": output,
            "usage": usage and response_usage(usage),
        }


class MessageItem:
    """The assistant's message, while it is being written."""

    def __init__(self) -> None:
        self.id, self.text, self.likelihoods = new_id("msg"), "", list[Json]()
        self.place = {"item_id": self.id, "output_index": 0, "content_index": 0}

    def json(self, status: str) -> Json:
        around = {"id": self.id, "type": "message", "status": status, "role": "assistant"}
        return {**around, "content": [self.part()]}

    def part(self) -> Json:
        around = {"type": "output_text", "annotations": []}
        return {**around, "text": self.text, "logprobs": [*self.likelihoods]}

    def opening(self) -> list[Event]:
        item = self.json("in_progress") | {"content": []}
        return [
            Event("output_item.added", {"output_index": 0, "item": item}),
            Event("content_part.added", {**self.place, "part": self.part()}),
        ]

    def push(self, text: str, likelihoods: list[Json]) -> list[Event]:
        self.text += text
        self.likelihoods += likelihoods
        if not (text or likelihoods):
            return []
        return [Event("output_text.delta", {**self.place, "delta": text, "logprobs": likelihoods})]

    def closing(self, status: str) -> list[Event]:
        whole = {"text": self.text, "logprobs": self.likelihoods}
        return [
            Event("output_text.done", {**self.place, **whole}),
            Event("content_part.done", {**self.place, "part": self.part()}),
            Event("output_item.done", {"output_index": 0, "item": self.json(status)}),
        ]


class CallItem:
    """The call of one of the functions, while it is being written."""

    def __init__(self, functions: Collection[str]) -> None:
        self.id, self.call_id, self.name, self.arguments = new_id("fc"), new_id("call"), "", ""
        self.place = {"item_id": self.id, "output_index": 0}
        self.writer = CallWriter(functions)

    def json(self, status: str) -> Json | None:
        """Return the call; None while its name is not written."""
        around = {"id": self.id, "type": "function_call", "status": status}
        call = {"call_id": self.call_id, "name": self.name, "arguments": self.arguments}
        return {**around, **call} if self.name else None

    def opening(self) -> list[Event]:
        return []

    def push(self, text: str, likelihoods: list[Json]) -> list[Event]:
        call = self.writer.push(text)
        if call is None:
            return []
        events, new = [], call["function"]
        if not self.name:
            self.name = new["name"]
            item = {"output_index": 0, "item": self.json("in_progress")}
            events.append(Event("output_item.added", item))
        self.arguments += new["arguments"]
        if new["arguments"]:
            delta = {**self.place, "delta": new["arguments"]}
            events.append(Event("function_call_arguments.delta", delta))
        return events

    def closing(self, status: str) -> list[Event]:
        if not self.name:
            return []
        whole = {**self.place, "name": self.name, "arguments": self.arguments}
        return [
            Event("function_call_arguments.done", whole),
            Event("output_item.done", {"output_index": 0, "item": self.json(status)}),
        ]


def new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def response_usage(usage: Json) -> Json:
    """Return the counts of tokens as this address has them.

    Clients read the details, which are not counted here.
    """
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
