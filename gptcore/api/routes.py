"""The routes of the API, as an ASGI application: models, the three kinds of calls, health, metrics.

>>> app = Api(Models(load_model("models/default")), Access())          # doctest: +SKIP
>>> uvicorn.run(app, port=8000)                                      # doctest: +SKIP
"""

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as Call
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gptcore.api.access import RETRY_SECONDS, Access, Receive, Refused, Scope, Send, read_json
from gptcore.api.bodies import ParsedCall, read_chat, read_completion
from gptcore.api.document import openapi
from gptcore.api.forms import ChatForm, Form, TextForm, Usage, error_json
from gptcore.api.functions import Json
from gptcore.api.responses import ResponseForm, read_response
from gptcore.checks import Busy, TooLong, UserError, shorten
from gptcore.engine.generate import Piece
from gptcore.engine.scheduler import Engine
from gptcore.engine.schemas.grammar import compiled
from gptcore.engine.streams import answers
from gptcore.model import OnnxModel
from gptcore.models import Models, NotHere, NotOpened

ADDRESSES = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/models")
PATHS = ("/v1/", "/health", "/ready", "/metrics")
LIMITED = "rate_limit_error"  # OpenAI's name for what may be tried again
INVALID = "invalid_request_error"
INTERNAL = "internal error: see the server's log"
METRICS: dict[str, Callable[[Engine], int]] = {
    "gptcore_replies_total": lambda engine: engine.n_finished,
    "gptcore_reply_tokens_total": lambda engine: engine.n_new,
    "gptcore_tokens_read_total": lambda engine: engine.slots.n_read,
    "gptcore_replies_running": lambda engine: engine.n_running - len(engine.waiting),
    "gptcore_replies_waiting": lambda engine: len(engine.waiting),
}
# Some readers of events take these for the end of a line; in JSON they stand only within texts.
BREAKS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
Read = Callable[[Any, OnnxModel], ParsedCall]
Pieces = AsyncIterator[tuple[int, Piece]]  # the number of a reply, and what is new of it


class Api:
    """The API. Errors have OpenAI's form; no answer holds a traceback or a path."""

    def __init__(self, models: Models, access: Access):
        self.models, self.access = models, access
        routes = [
            Route("/v1/openapi.json", self.document),
            Route("/v1/models", self.cards),
            Route("/v1/models/{name:path}", self.model_of_name),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
            Route("/health", self.health),
            Route("/ready", self.health),
            Route("/metrics", self.metrics),
        ]
        cors = Middleware(CORSMiddleware, allow_origins=[*access.origins], allow_methods=["*"],
                          allow_headers=["*"])  # fmt: skip
        handlers: dict[Any, Any] = {
            Refused: lambda call, no: self.refusal(no.status, str(no), no.code, no.wait),
            NotHere: lambda call, no: self.refusal(404, str(no), "model_not_found"),
            NotOpened: lambda call, no: self.refusal(503, str(no), "model_not_opened"),
            Busy: lambda call, busy: self.refusal(429, str(busy), "busy"),
            TooLong: lambda call, no: self.refusal(400, str(no), "context_length_exceeded"),
            UserError: lambda call, error: self.refusal(400, str(error)),
            Exception: lambda call, error: self.refusal(500, INTERNAL),
            404: lambda call, error: self.refusal(
                404, f"this API has no {shorten(call.url.path)}: it has {', '.join(ADDRESSES)}"
            ),
            405: lambda call, error: self.refusal(405, "this address does not accept that method"),
        }
        self.app = Starlette(routes=routes, middleware=[cors], exception_handlers=handlers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def refusal(
        self, status: int, message: str, code: str | None = None, wait: int = RETRY_SECONDS
    ) -> Response:
        kind = "server_error" if status >= 500 else INVALID
        kind = LIMITED if status == 429 else kind
        headers = {"Retry-After": str(wait)} if status in (429, 503) else {}
        return JSONResponse(error_json(message, kind, code), status, headers)

    async def health(self, call: Call) -> Response:
        return JSONResponse({"status": "ok", "model": self.models.names[0]})

    async def document(self, call: Call) -> Response:
        self.access.check(call.scope)
        return JSONResponse(openapi([*self.models.offered]))

    async def cards(self, call: Call) -> Response:
        self.access.check(call.scope)
        await asyncio.to_thread(self.models.look)
        return JSONResponse(
            {"object": "list", "data": [self.card(name) for name in self.models.names]}
        )

    async def model_of_name(self, call: Call) -> Response:
        self.access.check(call.scope)
        return JSONResponse(self.card(await self.models.find(call.path_params["name"])))

    def card(self, name: str) -> Json:
        offer, _ = self.models.asked(name)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "gptcore",
            "max_model_len": offer.facts.config.block_size,
        }

    async def metrics(self, call: Call) -> Response:
        self.access.check(call.scope)
        lines = []
        engines = {name: model.engine for name, model in self.models.open.items()}
        for name, figure in METRICS.items():
            lines += [f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"]
            for model, engine in engines.items():
                label = json.dumps(model, ensure_ascii=False)
                lines.append(f"{name}{{model={label}}} {figure(engine)}")
        return PlainTextResponse("\n".join(lines) + "\n")

    async def chat(self, call: Call) -> Response:
        return await self.answer(call, read_chat, ChatForm)

    async def completions(self, call: Call) -> Response:
        return await self.answer(call, read_completion, TextForm)

    async def responses(self, call: Call) -> Response:
        return await self.answer(call, read_response, ResponseForm)

    async def answer(self, call: Call, read: Read, new_form: type[Form]) -> Response:
        """Answer one call, whole or as a stream."""
        self.access.check(call.scope)
        with ExitStack() as held:
            held.enter_context(self.access.answering(call.scope))
            body = await read_json(call.scope, call.receive)
            wanted = body.get("model") if isinstance(body, dict) else None
            name = await self.models.find(wanted)
            model = await self.models.get(name)
            asked = await asyncio.to_thread(read, body, model)
            held.enter_context(self.access.answering(call.scope, len(asked.requests) - 1))
            asker = self.access.asker(call.scope)
            if asked.schema is not None:
                asked = asked.bound(await compiled(asked.schema, model.tokenizer, asker))
            stop = held.enter_context(stopping(call))
            pieces = answers(model.engine, asked.requests, stop, asker)
            form = new_form(name, model.tokenizer, asked)
            if not asked.stream:
                return await whole(pieces, asked, form)
            # The first piece is waited for here, so that an error until then has a status.
            begun = chained(await anext(pieces), pieces)
            left = held.pop_all()
            return Stream(streamed(begun, asked, form, left), left)


class Stream(StreamingResponse):
    """Events; what they hold is given up also if the client goes before the first of them."""

    def __init__(self, lines: AsyncIterator[str], held: ExitStack):
        super().__init__(lines, media_type="text/event-stream")
        self.held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held:
            await super().__call__(scope, receive, send)


async def whole(pieces: Pieces, asked: ParsedCall, form: Form) -> Response:
    """Return the answer when all replies have ended.

    With probabilities it is so large that to make it here would hold up everybody else.
    """
    usage = Usage()
    replies: list[list[Piece]] = [[] for _ in asked.requests]
    async for i, piece in pieces:
        usage.add(i, piece)
        replies[i].append(piece)
    return await asyncio.to_thread(lambda: JSONResponse(form.whole(replies, usage.json(asked.n))))


async def streamed(
    pieces: Pieces, asked: ParsedCall, form: Form, held: ExitStack
) -> AsyncIterator[str]:
    """Yield the answer's events; `held` is closed at the end. An error is an event, too."""
    usage = Usage()
    try:
        with held:
            yield written(form.opening())
            async for i, piece in pieces:
                usage.add(i, piece)
                made = partial(part_events, form, i, piece)
                # An echo's probabilities come all at once.
                yield await asyncio.to_thread(made) if piece.prompt else made()
        yield written(form.closing(usage.json(asked.n))) + form.done
    except Busy as busy:
        yield written([form.error(str(busy), LIMITED, "busy")])
    except UserError as error:
        yield written([form.error(str(error), INVALID)])
    except Exception:
        traceback.print_exc()
        yield written([form.error(INTERNAL, "server_error")])


@contextmanager
def stopping(call: Call) -> Iterator[Event]:
    """Give an event that is set when the client goes away, and at the end."""

    async def watch() -> None:
        while (await call.receive())["type"] != "http.disconnect":
            pass
        stop.set()

    stop = Event()
    watcher = asyncio.create_task(watch())
    try:
        yield stop
    finally:
        stop.set()
        watcher.cancel()


async def chained(first: tuple[int, Piece], rest: Pieces) -> Pieces:
    yield first
    async for pair in rest:
        yield pair


def part_events(form: Form, i: int, piece: Piece) -> str:
    return written(form.parts(i, piece))


def written(events: list[Json]) -> str:
    """Return server-sent events; each has the name that is its type, if it has one."""
    names = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    texts = (json.dumps(event, ensure_ascii=False).translate(BREAKS) for event in events)
    lines = [f"data: {text}\n\n" for text in texts]
    return "".join(name + line for name, line in zip(names, lines))
