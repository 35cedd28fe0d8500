"""Who may call, how often, and how much of it is read. The page's guard uses the same limits.

>>> Access(keys=["secret"]).check({"type": "http", "headers": [(b"host", b"localhost")]})
Traceback (most recent call last):
gptcore.api.access.Refused: this server needs a key: Authorization: Bearer KEY
"""

import asyncio
import hmac
import json
import math
import re
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from gptcore.checks import is_deeper
from gptcore.system.network import is_loopback

Scope = MutableMapping[str, Any]  # of ASGI
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

PORT = re.compile(r"^([\d.]+|\[.*\]):\d+$")  # behind an address, as some proxies write it
LONGEST_BODY = 2**20  # bytes; the longest conversation that fits a context is far smaller
LARGE_BODY = 2**14  # bytes
MOST_LEVELS = 200  # of a body's JSON: what reads it calls itself at each
BODY_SECONDS = 20.0  # for a whole body to arrive
REPLIES = 16  # most of a call, and most that one of several addresses waits for
ALL_REPLIES = 400  # most that all addresses wait for; a process may have 4,096 open files
MINUTE = 60.0
CLIENTS = 10_000  # whose calls of the last minute are known
RETRY_SECONDS = 5
GUESSES = 10  # wrong keys and passwords of one address in a minute


class Refused(Exception):
    """A call that is answered with an error: a status, a reason, and OpenAI's name for it.

    wait: seconds after which the same call may be answered, if it is too often or the server busy.
    """

    def __init__(
        self, status: int, reason: str, code: str | None = None, wait: int = RETRY_SECONDS
    ):
        super().__init__(reason)
        self.status, self.code, self.wait = status, code, wait

    def answer(self, headers: dict[str, str] | None = None) -> Response:
        """Return the answer of a page; the API's has OpenAI's form."""
        return JSONResponse({"detail": str(self)}, self.status, headers)


class Access:
    """The conditions of the API.

    `keys`: one of them is needed, if there are any. `origins`: of web pages that may call.
    `per_minute`: calls of one key, or of one address without keys. `behind_proxy`: whether a
    proxy in front reports the visitor's address in X-Forwarded-For, and checks the names of the
    server. `host`: the address on which the server listens.
    """

    def __init__(
        self,
        keys: Sequence[str] = (),
        origins: Sequence[str] = (),
        per_minute: int | None = None,
        behind_proxy: bool = False,
        host: str = "127.0.0.1",
    ):
        self.keys, self.origins = [key.encode() for key in keys], origins
        self.behind_proxy, self.is_local = behind_proxy, is_loopback(host) and not behind_proxy
        self.rate = Rate(per_minute) if per_minute is not None else None
        self.guesses = Rate(GUESSES, "wrong keys from your address")
        self.open: Counter[str] = Counter()  # pending replies, by address

    def check_host(self, scope: Scope) -> None:
        """Raise Refused for a name other than this machine's where only this machine may call.

        A page of another site could have a name of its own lead here (DNS rebinding).
        """
        name = Headers(scope=scope).get("host", "")
        if self.is_local and not is_loopback(re.sub(r":\d*$", "", name)):
            raise Refused(
                421,
                f"this server is not called {name[:100]!r}: use localhost or 127.0.0.1, with the "
                "same port",
            )

    def check(self, scope: Scope) -> None:
        """Raise Refused unless the call has a key that is known and does not call too often."""
        self.check_host(scope)
        given = Headers(scope=scope).get("authorization", "")
        key = given.partition(" ")[2].strip().encode() if given[:7].lower() == "bearer " else b""
        if self.keys and not key:
            told = "this server needs a key: Authorization: Bearer KEY"
            raise Refused(401, told, "invalid_api_key")
        if self.keys:
            guesser = visitor(scope, self.behind_proxy)
            self.guesses.check(guesser)
            if not any(hmac.compare_digest(key, known) for known in self.keys):
                self.guesses.count(guesser)
                told = "this server does not know the key that was sent"
                raise Refused(401, told, "invalid_api_key")
        self.check_post(scope)
        if self.rate:
            client = key if self.keys else visitor(scope, self.behind_proxy)
            self.rate.check(client)
            self.rate.count(client)

    def check_post(self, scope: Scope) -> None:
        """Raise Refused if another site's page posts what a browser sends without asking first.

        A browser asks (preflight) before it sends JSON, but not before plain text.
        """
        headers = Headers(scope=scope)
        is_named = headers.get("origin") in self.origins or "*" in self.origins
        is_json = headers.get("content-type", "").startswith("application/json")
        if scope.get("method") == "POST" and not (is_own_page(headers) or is_named or is_json):
            raise Refused(403, "a page of another site may not call this: send application/json")

    def asker(self, scope: Scope) -> str:
        """Return the name under which a caller gets slots, or "" if only this machine can call."""
        return "" if self.is_local else visitor(scope, self.behind_proxy)

    @contextmanager
    def answering(self, scope: Scope, n: int = 1) -> Iterator[None]:
        """Count replies while they are pending; raises Refused if too many are.

        If only this machine can call, an address has no limit of its own: nobody else needs the
        slots, and programs send all they have.
        """
        address = visitor(scope, self.behind_proxy)
        if not self.is_local and self.open[address] + n > REPLIES:
            reason = f"one address may wait for {REPLIES} replies: let one end first"
            raise Refused(429, reason, "busy")
        if self.open.total() + n > ALL_REPLIES:
            raise Refused(429, "the server has too many pending replies: try again soon", "busy")
        self.open[address] += n
        try:
            yield
        finally:
            self.open -= Counter({address: n})  # names without a reply are dropped


class Rate:
    """How often each client called in the last minute."""

    def __init__(self, most: int, what: str = "calls"):
        self.most, self.what = most, what
        # The times of their calls, by client; the latest caller is last.
        self.calls: OrderedDict[object, deque[float]] = OrderedDict()

    def check(self, client: object) -> None:
        """Raise Refused if the client called as often as it may."""
        times, now = self.calls.get(client, deque()), time.monotonic()
        while times and now - times[0] > MINUTE:
            times.popleft()
        if len(times) >= self.most:
            wait = math.ceil(times[0] + MINUTE - now)
            told = f"more than {self.most} {self.what} in a minute: try again in {wait} seconds"
            raise Refused(429, told, "rate_limit_exceeded", wait)

    def count(self, client: object) -> None:
        self.calls.setdefault(client, deque(maxlen=self.most)).append(time.monotonic())
        self.calls.move_to_end(client)
        if len(self.calls) > CLIENTS:
            self.calls.popitem(last=False)


def visitor(scope: Scope, behind_proxy: bool) -> str:
    """Return the address that a visitor is counted by; behind a proxy, the one that it added."""
    # Some proxies write a line of their own below the visitor's.
    lines = Headers(scope=scope).getlist("x-forwarded-for") if behind_proxy else []
    client = scope.get("client") or ("",)
    last = ",".join(lines).rpartition(",")[2].strip()
    return network_of(PORT.sub(r"\1", last).strip("[]") or client[0])


def network_of(address: str) -> str:
    """Return an address, or the 64-bit network of an IPv6 one: a visitor has all its addresses.

    >>> network_of("2001:db8::5"), network_of("::ffff:10.0.0.1"), network_of("10.0.0.1")
    ('2001:db8::', '10.0.0.1', '10.0.0.1')
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


def is_own_page(headers: Headers) -> bool:
    """Whether a request comes from this server's own page, or from no page."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def check_origin(scope: Scope) -> None:
    """Raise Refused if a page of another site calls, by the Origin that browsers send."""
    if not is_own_page(Headers(scope=scope)):
        raise Refused(403, "a page of another site may not call this: use this server's own page")


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Return a body; raises Refused if it is too long, or does not arrive."""
    announced = Headers(scope=scope).get("content-length", "0")
    if not announced.isdecimal() or int(announced) > LONGEST_BODY:
        raise Refused(413, f"a request's body may have {LONGEST_BODY:,} bytes")
    try:
        return await asyncio.wait_for(whole_body(receive), BODY_SECONDS)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds") from None


async def whole_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            raise Refused(413, f"a request's body may have {LONGEST_BODY:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


async def read_json(scope: Scope, receive: Receive) -> Any:
    """Return the JSON of a body, or None if it is empty; raises Refused."""
    return await parsed(await read_body(scope, receive), parse)


async def parsed(body: bytes, read: Callable[[bytes], Any]) -> Any:
    """Return what `read` makes of a body, in a thread if it is so large that others would wait."""
    return await asyncio.to_thread(read, body) if len(body) > LARGE_BODY else read(body)


def parse(body: bytes) -> Any:
    try:
        content = json.loads(body, parse_constant=refuse_constant) if body else None
        # Half a surrogate pair is not text, and 1e999 is read as Infinity.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
    if is_deeper(content, MOST_LEVELS):
        raise Refused(400, f"the body's JSON has more than {MOST_LEVELS} levels")
    return content


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)
