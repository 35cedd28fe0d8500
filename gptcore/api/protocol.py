"""uvicorn's HTTP, with limits on what one visitor's bytes can cost all the others.

>>> Server(Config(app, port=8000, behind_proxy=False)).run()           # doctest: +SKIP
"""

import asyncio
import socket
import time
from collections import Counter
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gptcore.api.access import network_of

SMALL_CHUNK = 64  # bytes
MOST_SMALL = 1024  # per body: h11 takes 8 µs for each, and nobody is answered meanwhile
# Connections that may wait to be accepted: all are accepted at once, and nobody is answered
# meanwhile. With uvicorn's 2,048, clients that asked and left in a loop kept others waiting for
# seconds; with 128, some of a crowd of 500 that came at once were lost.
BACKLOG = 256
MOST_OPEN = 1000  # connections of one address; a process may have 4,096
HALF_OPEN = 32  # connections of one address on which no request is complete
HEADER_SECONDS = 20.0  # for a request's headers to arrive
READ_SECONDS = 300.0  # for the next part of an answer to be read; as long as a reply may take
LAST_SECONDS = 3.0  # in which answers may end after Ctrl-C


class Reader(h11.Connection):
    """What reads the bytes of a connection; a body in very many small chunks is an error."""

    n_small = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.n_small = 0
        elif isinstance(event, h11.Data) and event.chunk_start and len(event.data) < SMALL_CHUNK:
            self.n_small += 1
            if self.n_small > MOST_SMALL:
                raise h11.RemoteProtocolError("too many small chunks")
        return event


class Protocol(H11Protocol):
    """uvicorn's protocol.

    One address, unless it is a proxy's, cannot take all connections by asking for something every
    few seconds on each.
    """

    config: "Config"

    def __init__(self, *values: Any, **named: Any):
        super().__init__(*values, **named)
        self.conn = Reader(h11.SERVER)
        self.config.connections = self.connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.config.behind_proxy:
            return
        self.address = network_of((self.client or ("",))[0])
        mine = [c for c in self.connections if getattr(c, "address", "") == self.address]
        if len(mine) > MOST_OPEN:
            transport.abort()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer has begun: there is no place for another one
            self.transport.close()


class Config(uvicorn.Config):
    """uvicorn's settings with these limits. `behind_proxy`: all connections come from a proxy.

    Each second, connections that uvicorn would keep without end are closed.
    """

    def __init__(self, *values: Any, behind_proxy: bool, **named: Any):
        ours = {
            "http": Protocol,
            "backlog": BACKLOG,
            # uvicorn would believe X-Forwarded-For from this machine, which has other users.
            "proxy_headers": False,
            "server_header": False,
            "log_level": "error",  # malformed requests would fill a log with warnings
            "callback_notify": self.sweep,
            "timeout_notify": 1,
        }
        super().__init__(*values, **named | ours)
        self.behind_proxy = behind_proxy
        self.connections: set[Any] = set()  # the server's, as the first of them gives it
        # A connection and the last request on it -> when it was first seen without another.
        self.half_open: dict[tuple[Any, Any], float] = {}
        # A connection and the bytes that wait to be read -> when they were first seen.
        self.unread: dict[tuple[Any, int], float] = {}

    async def sweep(self) -> None:
        """Close connections whose headers do not arrive, or whose answer nobody reads."""
        now = time.monotonic()
        http = [c for c in self.connections if hasattr(c, "cycle")]  # a websocket's has none
        waiting = [(c, c.cycle) for c in http if not c.cycle or c.cycle.response_complete]
        self.half_open = {key: self.half_open.get(key, now) for key in waiting}
        n_open: Counter[str] = Counter()
        newest_first = sorted(self.half_open.items(), key=lambda item: -item[1])
        for (connection, last), at in newest_first:
            address = network_of((connection.client or ("",))[0])
            is_new = last is None  # the others are kept open for the next request
            n_open[address] += is_new and not self.behind_proxy
            if now - at > HEADER_SECONDS or (is_new and n_open[address] > HALF_OPEN):
                connection.transport.close()
        full = [c for c in http if c.flow and c.flow.write_paused]
        unread = [(c, c.transport.get_write_buffer_size()) for c in full]
        self.unread = {key: self.unread.get(key, now) for key in unread}
        for (connection, _), at in self.unread.items():
            if now - at > READ_SECONDS:
                connection.transport.abort()  # to close it would wait until all is read


class Server(uvicorn.Server):
    """uvicorn's server, but after Ctrl-C it waits LAST_SECONDS at most for answers to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A reply whose client goes away is ended; to cancel it would leave a traceback in the log.
        asyncio.get_running_loop().call_later(LAST_SECONDS, self.abort)
        await super().shutdown(sockets)

    def abort(self) -> None:
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
