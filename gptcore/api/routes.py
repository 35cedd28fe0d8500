"""The routes of the API, as an ASGI application: models, chat, completions, health, metrics.

>>> app = Api(load_model("models/default"), Door())                  # doctest: +SKIP
>>> uvicorn.run(app, port=8000)                                      # doctest: +SKIP
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as Call
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gptcore.api.bodies import Asked, read_chat, read_completion
from gptcore.api.document import openapi
from gptcore.api.door import Door, Refused, read_json
from gptcore.api.forms import ChatForm, Json, TextForm, Usage, error_json
from gptcore.checks import UserError
from gptcore.engine import Busy
from gptcore.generate import Piece
from gptcore.model import OnnxModel
from gptcore.streams import answers

PATHS = ("/v1/", "/health", "/ready", "/metrics")
RETRY_SECONDS = 5
REPLY_SECONDS = 300.0  # after which replies are ended, so that others get their turn
Read = Callable[[Any, OnnxModel], Asked]


class Api:
    """The API of one model. Errors have OpenAI's form; no answer holds a traceback or a path."""

    def __init__(self, model: OnnxModel, door: Door):
        self.model, self.door = model, door
        self.name = model.bundle.name
        routes = [
            Route("/v1/openapi.json", self.document),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model_of_name),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/health", self.health),
            Route("/ready", self.health),
            Route("/metrics", self.metrics),
        ]
        cors = Middleware(CORSMiddleware, allow_origins=[*door.origins], allow_methods=["*"],
                          allow_headers=["*"])  # fmt: skip
        handlers: dict[Any, Any] = {
            Refused: lambda call, no: self.refusal(no.status, str(no), no.code),
            Busy: lambda call, busy: self.refusal(429, str(busy), "busy"),
            UserError: lambda call, error: self.refusal(400, str(error)),
            404: lambda call, error: self.refusal(404, "this API has no such address"),
            405: lambda call, error: self.refusal(405, "this address takes another method"),
        }
        self.app = Starlette(routes=routes, middleware=[cors], exception_handlers=handlers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def refusal(self, status: int, message: str, code: str | None = None) -> Response:
        kind = "rate_limit_error" if status == 429 else "invalid_request_error"
        headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
        return JSONResponse(error_json(message, kind, code), status, headers)

    async def health(self, call: Call) -> Response:
        return JSONResponse({"status": "ok", "model": self.name})

    async def document(self, call: Call) -> Response:
        self.door.check(call.scope)
        return JSONResponse(openapi(self.name))

    async def models(self, call: Call) -> Response:
        self.door.check(call.scope)
        return JSONResponse({"object": "list", "data": [self.card()]})

    async def model_of_name(self, call: Call) -> Response:
        self.door.check(call.scope)
        self.check_name(call.path_params["name"])
        return JSONResponse(self.card())

    def card(self) -> dict[str, Any]:
        config = self.model.config
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "gptcore",
            "max_model_len": config.block_size,
        }

    def check_name(self, name: object) -> None:
        if name is not None and name != self.name:
            reason = f"the model {name!r} is not here, only {self.name!r}"
            raise Refused(404, reason, "model_not_found")

    async def metrics(self, call: Call) -> Response:
        self.door.check(call.scope)
        engine = self.model.engine
        figures = {
            "gptcore_replies_total": engine.n_finished,
            "gptcore_reply_tokens_total": engine.n_new,
            "gptcore_tokens_read_total": engine.slots.n_read,
            "gptcore_replies_running": engine.n_running - len(engine.waiting),
            "gptcore_replies_waiting": len(engine.waiting),
        }
        lines = [
            line
            for name, value in figures.items()
            for line in (
                f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}",
                f"{name} {value}",
            )
        ]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def chat(self, call: Call) -> Response:
        if not self.model.bundle.is_chat:
            raise UserError(
                f"{self.name} was not trained on conversations and only continues text: "
                "use /v1/completions"
            )
        return await self.answer(call, read_chat, lambda asked: ChatForm(self.name, self.tokenizer))

    async def completions(self, call: Call) -> Response:
        return await self.answer(
            call, read_completion, lambda asked: TextForm(self.name, self.tokenizer, asked.echo)
        )

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer

    async def answer(
        self, call: Call, read: Read, new_form: Callable[[Asked], ChatForm | TextForm]
    ) -> Response:
        """Answer one call, whole or as a stream."""
        self.door.check(call.scope)
        body = await read_json(call.scope, call.receive)
        self.check_name(body.get("model") if isinstance(body, dict) else None)
        asked = await asyncio.to_thread(read, body, self.model)
        answer = self.stream if asked.stream else self.whole
        with ExitStack() as stack:
            stack.enter_context(self.door.answering(call.scope))
            return await answer(call, asked, new_form(asked), stack)

    async def whole(
        self, call: Call, asked: Asked, form: ChatForm | TextForm, stack: ExitStack
    ) -> Response:
        usage, stop = Usage(), Event()
        replies: list[list[Piece]] = [[] for _ in asked.requests]
        with stopping(call, stop):
            async for i, piece in answers(self.model.engine, asked.requests, stop):
                usage.add(i, piece)
                replies[i].append(piece)
        return JSONResponse(form.whole(replies, usage.json(asked.n)))

    async def stream(
        self, call: Call, asked: Asked, form: ChatForm | TextForm, stack: ExitStack
    ) -> Response:
        usage, stop = Usage(), Event()
        pieces = answers(self.model.engine, asked.requests, stop)
        # The first piece is waited for here, so that an error until then has a status of its own.
        with stopping(call, stop):
            first = await anext(pieces)
        kept = stack.pop_all()  # closed when the stream ends

        async def lines() -> AsyncIterator[str]:
            with kept, stopping(call, stop):
                for part in form.opening(len(asked.requests)):
                    yield event(part)
                async for i, piece in chained(first, pieces):
                    usage.add(i, piece)
                    yield event(form.part(i, piece))
                if asked.include_usage:
                    yield event(form.usage_part(usage.json(asked.n)))
                yield "data: [DONE]\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


@contextmanager
def stopping(call: Call, stop: Event) -> Iterator[None]:
    """Set `stop` when the client goes away, or after REPLY_SECONDS."""

    async def watch() -> None:
        while (await call.receive())["type"] != "http.disconnect":
            pass
        stop.set()

    timer = asyncio.get_running_loop().call_later(REPLY_SECONDS, stop.set)
    watcher = asyncio.create_task(watch())
    try:
        yield
    except BaseException:
        stop.set()
        raise
    finally:
        timer.cancel()
        watcher.cancel()


async def chained(
    first: tuple[int, Piece], rest: AsyncIterator[tuple[int, Piece]]
) -> AsyncIterator[tuple[int, Piece]]:
    yield first
    async for pair in rest:
        yield pair


def event(content: Json) -> str:
    """Return a server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
