"""What the page's server lets in: the paths that the page needs, small bodies, known hosts.

Gradio serves more than this page uses: it takes uploads without a limit, fetches addresses that a
visitor names, and answers under any host name. Guard is an ASGI middleware around all of it. It
also sends the headers that tell a browser what the page may do.

>>> page.launch(app_kwargs={"middleware": [Middleware(Guard, host="127.0.0.1")]})  # doctest: +SKIP
"""

import asyncio
import base64
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import nullcontext
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from gptcore.page.crowd import Crowd, Refused, Scope

Message = MutableMapping[str, Any]  # of ASGI
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_BODY = 2**20  # bytes; the longest conversation that fits a context is far smaller
LARGE_BODY = 2**14
BODY_SECONDS = 20.0  # for a whole body to arrive
NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt|pwa_icon(/\d+)?)/?"
    r"|/(assets|static|svelte)/.+"
    r"|/gradio_api/(info|openapi\.json|startup-events|app_id|cancel|reset|theme\.css)/?"
    r"|/gradio_api/run/predict/?"  # of Stop, which does not queue; Gradio refuses it to the others
    r"|/gradio_api/(queue/(join|data)|heartbeat/[^/]+|call/(v2/)?[^/]+(/[^/]+)?)/?"
)
STREAM = re.compile(r"/gradio_api/(queue/data|heartbeat/|call/.+/.)")
JOIN = re.compile(r"/gradio_api/(queue/join|call/)")
INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Guard:
    """ASGI middleware that answers what the page does not need itself, with 4xx and a reason.

    `host`: the address on which the server listens. Where only this machine can reach it, other
    names are refused, since a page of another site could have a name of its own lead here (DNS
    rebinding). `behind_proxy`: see Crowd.
    """

    def __init__(self, app: Asgi, host: str, behind_proxy: bool = False):
        self.app, self.is_local = app, is_loopback(host)
        self.crowd = Crowd(behind_proxy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # lasts as long as the server
            sweeping = asyncio.create_task(self.crowd.sweep(scope["app"].get_blocks()))
            await self.app(scope, receive, send)
            sweeping.cancel()
            return
        if scope["type"] != "http":  # the page opens no websocket
            return
        send = with_policy(send)
        try:
            self.check_address(scope)
            if scope["method"] in ("GET", "HEAD", "OPTIONS"):
                await self.read(scope, receive, send)
            else:
                await self.write(scope, receive, send)
        except Refused as refused:
            status, reason = refused.args
            headers = {"Retry-After": "10"} if status in (429, 503) else {}
            await JSONResponse({"detail": reason}, status, headers)(scope, receive, send)

    async def read(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = scope["app"].get_blocks()._queue
        is_stream = STREAM.match(scope["path"])
        with self.crowd.reading(scope, queue) if is_stream else nullcontext():
            await self.app(scope, receive, send)

    async def write(self, scope: Scope, receive: Receive, send: Send) -> None:
        content, receive = await checked_body(scope, receive)
        if JOIN.match(scope["path"]):
            session = content.get("session_hash") if isinstance(content, dict) else None
            self.crowd.join(scope, scope["app"].get_blocks()._queue, session)
        await self.app(scope, receive, send)

    def check_address(self, scope: Scope) -> None:
        name = Headers(scope=scope).get("host", "")
        if self.is_local and not is_loopback(re.sub(r":\d*$", "", name)):
            raise Refused(421, f"this page is not served as {name!r}: use http://127.0.0.1")
        if not NEEDED.fullmatch(scope["path"]):
            raise Refused(403, "this page does not use that address")


def is_loopback(host: str) -> bool:
    """Return whether an address or a name means this machine alone."""
    host = host.strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


async def checked_body(scope: Scope, receive: Receive) -> tuple[Any, Receive]:
    """Read a body; return its JSON, and a `receive` that gives it again. Raises Refused."""
    announced = Headers(scope=scope).get("content-length", "0")
    if announced.isdigit() and int(announced) > LONGEST_BODY:
        raise Refused(413, f"a request's body may have {LONGEST_BODY:,} bytes")
    try:
        body = await asyncio.wait_for(read_body(receive), BODY_SECONDS)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds") from None
    # A large one takes so long that others would wait.
    large = len(body) > LARGE_BODY
    content = await asyncio.to_thread(check_json, body) if large else check_json(body)
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(messages, None) or await receive()

    return content, again


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            raise Refused(413, f"a request's body may have {LONGEST_BODY:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


def check_json(body: bytes) -> Any:
    """Return JSON; raise Refused if it is none, or names a file or an address to be fetched."""
    try:
        content = json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
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
    """Return the Content-Security-Policy of an HTML page: of inline scripts, only its own run."""
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
