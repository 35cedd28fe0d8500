"""What the page's server lets in: the paths that the page needs, small bodies, known hosts.

Gradio serves more than this page uses: it takes uploads without a limit, fetches addresses that a
visitor names, and answers under any host name. Guard is an ASGI middleware around all of it. It
also sends the headers that tell a browser what the page may do.

>>> Middleware(Guard, api=api)                                        # doctest: +SKIP
"""

import asyncio
import base64
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response

from gptcore.api.access import (
    Asgi,
    Message,
    Receive,
    Refused,
    Scope,
    Send,
    parse,
    parsed,
    read_body,
)
from gptcore.api.login import Login
from gptcore.api.routes import PATHS as API_PATHS
from gptcore.api.routes import Api
from gptcore.gradio.guard.arguments import check_call
from gptcore.gradio.guard.visitors import Visitors, session_read
from gptcore.page.train.routes import PREFIX as TRAIN_PATHS
from gptcore.page.train.routes import TrainRoutes

NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt|pwa_icon(/\d+)?)/?"
    r"|/(assets|static|svelte|view)/[!-~]{1,200}"  # no disk takes names of more than 255 bytes
    r"|/gradio_api/(info|openapi\.json|startup-events|app_id|cancel|reset|theme\.css)/?"
    r"|/gradio_api/run/predict/?"  # of Stop, which does not queue; Gradio refuses it to the others
    r"|/gradio_api/(queue/(join|data)|heartbeat/[^/]+|call/(v2/)?[^/]+(/[^/]+)?)/?"
)
ANSWER = re.compile(r"/gradio_api/(queue/data|call/.)")
STREAM = re.compile(ANSWER.pattern + "|/gradio_api/heartbeat/")
JOIN = re.compile(r"/gradio_api/(queue/join|call/)")
CALL = re.compile(JOIN.pattern + r"|/gradio_api/run/predict")
OPEN = ("/health", "/ready", "/gradio_api/startup-events")  # Gradio asks itself for the last one
INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Guard:
    """ASGI middleware that answers what the page does not need itself, with 4xx and a reason.

    `api`: what answers the calls of the API. `login`: what is asked of a visitor, if anything.
    `train`: what answers those of Train, if the page offers it.
    """

    def __init__(
        self, app: Asgi, api: Api, login: Login | None = None, train: TrainRoutes | None = None
    ):
        self.app, self.api, self.login, self.train = app, api, login, train
        self.visitors = Visitors(api.access.behind_proxy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # lasts as long as the server
            sweeping = asyncio.create_task(self.visitors.sweep(scope["app"].get_blocks()))
            await self.app(scope, receive, send)
            sweeping.cancel()
            return
        if scope["type"] != "http":  # the page opens no websocket
            await send({"type": "websocket.close"})
            return
        send = with_policy(send)
        try:
            self.api.access.check_host(scope)
            login = None if self.is_open(scope) else self.login
            if login and (welcome := login.check(scope, self.api.access.behind_proxy)):
                await welcome(scope, receive, send)
                return
            if scope["path"].startswith(API_PATHS):
                await self.api(scope, receive, send)
                return
            if self.train and scope["path"].startswith(TRAIN_PATHS):
                await self.train(scope, receive, send)
                return
            if not NEEDED.fullmatch(scope["path"]):
                raise Refused(403, "this page does not use that address: programs use /v1")
            if scope["method"] in ("GET", "HEAD", "OPTIONS"):
                await self.read(scope, receive, send)
            else:
                await self.write(scope, receive, send)
        except Refused as refused:
            await self.refusal(scope, refused)(scope, receive, send)

    def refusal(self, scope: Scope, refused: Refused) -> Response:
        headers = {"Retry-After": "10"} if refused.status == 429 else {}
        if refused.status == 401 and self.login:
            headers = self.login.challenge
        if "text/html" in Headers(scope=scope).get("accept", ""):  # a person reads it
            return PlainTextResponse(str(refused), refused.status, headers)
        return refused.answer(headers)

    async def read(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = scope["app"].get_blocks()._queue
        is_stream = STREAM.match(scope["path"])
        if scope["method"] == "GET" and ANSWER.match(scope["path"]):
            known = queue.pending_messages_per_session
            if session_read(scope, queue) not in known:  # Gradio would begin to answer, and fail
                raise Refused(404, "this session has no waiting or running request")
        with self.visitors.reading(scope, queue) if is_stream else nullcontext():
            await self.app(scope, receive, send)

    async def write(self, scope: Scope, receive: Receive, send: Send) -> None:
        content, receive = await checked_body(scope, receive)
        if CALL.match(scope["path"]):
            check_call(scope["app"].get_blocks(), scope["path"], content)
        if JOIN.match(scope["path"]):
            session = content.get("session_hash") if isinstance(content, dict) else None
            self.visitors.join(scope, scope["app"].get_blocks()._queue, session)
        await self.app(scope, receive, send)

    def is_open(self, scope: Scope) -> bool:
        """Return whether an address needs no login, or checks keys of its own."""
        path = scope["path"]
        is_question = path.startswith("/v1/") and scope["method"] == "OPTIONS"  # before CORS
        asks_for_a_key = path.startswith("/v1/") or path == "/metrics"
        return is_question or (asks_for_a_key and bool(self.api.access.keys)) or path in OPEN


async def checked_body(scope: Scope, receive: Receive) -> tuple[Any, Receive]:
    """Read a body; return its JSON, and a `receive` that gives it again. Raises Refused."""
    body = await read_body(scope, receive)
    content = await parsed(body, check_json)
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(messages, None) or await receive()

    return content, again


def check_json(body: bytes) -> Any:
    """Return a body's JSON; raise Refused if it is not JSON, or names a file or URL to fetch."""
    content = parse(body)
    for keys in objects(content):
        if not keys.isdisjoint({"path", "url", "_type"}):
            raise Refused(400, "this page takes no files: send text")
    return content


def objects(content: Any) -> Iterator[set[str]]:
    """Yield the keys of every object in a JSON value."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield set(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def with_policy(send: Send) -> Send:
    """Return a `send` that adds the headers of security; a document is held until it is whole."""
    start: Message = {}
    document = bytearray()

    async def checked(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
            if headers.get("content-type", "").startswith("text/html"):
                start = message
                return
        elif start and message["type"] == "http.response.body":
            document.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            MutableHeaders(scope=start)["Content-Security-Policy"] = policy(bytes(document))
            await send(start)
            message = {**message, "body": bytes(document)}
        await send(message)

    return checked


def policy(document: bytes) -> str:
    """Return the Content-Security-Policy of an HTML page: no inline scripts but its own run."""
    hashes = [
        base64.b64encode(hashlib.sha256(script).digest()).decode()
        for script in INLINE.findall(document)
    ]
    # The plots' library compiles its expressions, so that eval stays possible for our scripts.
    scripts = " ".join(["'self'", "'unsafe-eval'", *(f"'sha256-{found}'" for found in hashes)])
    around = "'self' https://huggingface.co" if os.environ.get("SPACE_ID") else "'self'"
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; "
        f"base-uri 'self'; form-action 'self'; frame-ancestors {around}"
    )
