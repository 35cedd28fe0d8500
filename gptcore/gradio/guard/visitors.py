"""How much of the page one visitor may hold at a time, and for how long.

Gradio bounds its queue as a whole only: one visitor could fill it with requests whose replies
nobody reads, or join under so many names that other visitors' replies are forgotten. A visitor is
an address (of IPv6 a network of 64 bits), since visitors choose the names of their sessions.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from gptcore.api.access import Refused, Scope, visitor

if TYPE_CHECKING:
    from gradio import Blocks
    from gradio.queueing import Event, Queue

EVENTS = 16  # that wait or run for one address
SESSIONS = 100  # that one address joined under within SESSION_SECONDS
ALL_SESSIONS = 1500  # of all addresses; Gradio forgets the oldest of 2,000
STREAMS = 64  # that one address has open
ALL_STREAMS = 400  # of all addresses; a process may have 4,096 open files
SESSION_SECONDS = 60.0
UNREAD_SECONDS = 10.0  # after which a request whose reply nobody reads is given up


class Visitors:
    """The visitors of one page: the streams that they read, and the sessions that they joined.

    `behind_proxy`: whether a proxy in front reports the visitor's address in X-Forwarded-For.
    """

    def __init__(self, behind_proxy: bool):
        self.behind_proxy = behind_proxy
        self.streams: Counter[str] = Counter()  # open ones of each address
        self.readers: Counter[str] = Counter()  # open ones of each session
        self.joined: dict[str, tuple[str, float]] = {}  # session -> address, time of the last join

    def address(self, scope: Scope) -> str:
        return visitor(scope, self.behind_proxy)

    @contextmanager
    def reading(self, scope: Scope, queue: "Queue") -> Iterator[None]:
        """Count a stream for as long as it is open; raises Refused."""
        address, session = self.address(scope), session_read(scope, queue)
        if self.streams[address] >= STREAMS or self.streams.total() >= ALL_STREAMS:
            raise Refused(429, "too many connections are open: close a tab of this page")
        self.streams[address] += 1
        self.readers[session] += 1
        try:
            yield
        finally:
            self.streams -= Counter([address])  # names without a stream are dropped
            self.readers -= Counter([session])
            if session not in self.readers and not queue.pending_event_ids_session.get(session):
                self.forget(session, queue)  # all that was asked for is read

    def join(self, scope: Scope, queue: "Queue", session: object) -> None:
        """Record that an address joins the queue, with or without a session; raises Refused."""
        address = self.address(scope)
        if queue.max_size is not None and len(queue) >= queue.max_size:
            raise Refused(429, f"the page is busy, {len(queue)} requests wait: try again soon")
        waiting = [e for e in queue.event_ids_to_events.values() if self.is_of(e, address)]
        if len(waiting) >= EVENTS:
            raise Refused(429, f"{len(waiting)} of your requests wait or run: let one end first")
        if not isinstance(session, str):
            return
        mine = sum(other == address for other, _ in self.joined.values())
        is_new = session not in self.joined
        if is_new and (mine >= SESSIONS or len(self.joined) >= ALL_SESSIONS):
            raise Refused(429, "too many visitors from your address: try again in a minute")
        self.joined[session] = address, time.monotonic()

    def is_of(self, event: "Event", address: str) -> bool:
        return self.address(event.request.scope) == address

    async def sweep(self, page: "Blocks") -> None:
        """Drop, once a second until the server ends, whatever nobody reads or finishes."""
        while True:
            await asyncio.sleep(1.0)
            await self.forget_unread(page._queue, time.monotonic())

    async def forget_unread(self, queue: "Queue", now: float) -> None:
        for event in list(queue.event_ids_to_events.values()):
            is_old = now - event.enqueue_time > UNREAD_SECONDS
            if is_old and event.session_hash not in self.readers:
                await queue.clean_events(session_hash=event.session_hash)
        for session in queue.pending_messages_per_session:
            self.joined.setdefault(session, ("", now))
        for session, (_, at) in list(self.joined.items()):
            if now - at > SESSION_SECONDS and session not in self.readers:
                self.forget(session, queue)

    def forget(self, session: str, queue: "Queue") -> None:
        self.joined.pop(session, None)
        queue.pending_event_ids_session.pop(session, None)
        with suppress(KeyError):
            del queue.pending_messages_per_session[session]


def session_read(scope: Scope, queue: "Queue") -> str:
    """Return the session whose replies a stream reads, by its query or by the event it names."""
    if asked := parse_qs(scope["query_string"].decode("latin-1")).get("session_hash"):
        return asked[0]
    event_id = scope["path"].rstrip("/").rpartition("/")[2]
    if event := queue.event_ids_to_events.get(event_id):
        return event.session_hash
    sessions = queue.pending_event_ids_session.items()  # has events that are done, but unread
    return next((session for session, ids in sessions if event_id in ids), "")
