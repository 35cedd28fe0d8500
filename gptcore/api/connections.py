"""Closes the connections that uvicorn would keep without end, of either server.

>>> connections = Connections(behind_proxy=False)
>>> connections.sweep(server.server_state.connections, time.monotonic())   # doctest: +SKIP
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gptcore.api.access import network_of

HALF_OPEN = 32  # connections of one address on which no request is complete
HEADER_SECONDS = 20.0  # for a request's headers to arrive
READ_SECONDS = 300.0  # for the next part of an answer to be read; as long as a reply may take


class Connections:
    """How long connections have been half open or unread, as seen at each sweep.

    `behind_proxy`: one address, the proxy's, opens those of all visitors.
    """

    def __init__(self, behind_proxy: bool):
        self.behind_proxy = behind_proxy
        # uvicorn's connection and the last request on it -> when it was first seen without another
        self.half_open: dict[tuple[Any, Any], float] = {}
        # connection and the bytes that wait to be read -> when they were first seen
        self.unread: dict[tuple[Any, int], float] = {}

    def sweep(self, connections: Iterable[Any], now: float) -> None:
        """Close connections whose headers do not arrive, or whose answer nobody reads."""
        http = [c for c in connections if hasattr(c, "cycle")]  # a websocket's has none
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
