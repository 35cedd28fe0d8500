"""uvicorn's HTTP, with limits on what one visitor's bytes can cost all the others.

>>> Server(Config(app, port=8000, behind_proxy=False)).run()           # doctest: +SKIP
"""

import asyncio
import logging
import socket
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
    """uvicorn's protocol; what strangers send malformed leaves nothing in the log.

    One address, unless it is a proxy's, cannot take all connections by asking for something every
    few seconds on each.
    """

    config: "Config"

    def __init__(self, *values: Any, **named: Any):
        super().__init__(*values, **named)
        self.conn = Reader(h11.SERVER)
        self.logger.setLevel(logging.ERROR)  # malformed requests would fill a log with warnings

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
    """uvicorn's settings with these limits. `behind_proxy`: all connections come from a proxy."""

    def __init__(self, *values: Any, behind_proxy: bool, **named: Any):
        # uvicorn would believe X-Forwarded-For from this machine, which has other users.
        ours = {"http": Protocol, "backlog": BACKLOG, "proxy_headers": False}
        super().__init__(*values, **named | ours)
        self.behind_proxy = behind_proxy


class Server(uvicorn.Server):
    """uvicorn's server, but after Ctrl-C it waits LAST_SECONDS at most for answers to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A reply whose client goes away is ended; to cancel it would leave a traceback in the log.
        asyncio.get_running_loop().call_later(LAST_SECONDS, self.abort)
        await super().shutdown(sockets)

    def abort(self) -> None:
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
