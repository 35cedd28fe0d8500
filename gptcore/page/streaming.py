"""Replies for an event loop: computed in the engine's thread, sent several times a second.

>>> async for progress in stream(model.engine, request, stop):       # doctest: +SKIP
...     show(progress.text, progress.line(model.config.block_size))
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from gptcore.engine.generate import FINISH, Piece, Request, Stop
from gptcore.engine.scheduler import Engine
from gptcore.engine.streams import answers

REPLY_SECONDS = 300.0  # after which a reply is ended, so that others get their turn
YIELD_SECONDS = 0.05  # one update per token would freeze browsers
Client = str | None  # a browser's tab: Gradio's session_hash


@dataclass
class Progress:
    """A growing reply, and its figures."""

    started: float = field(default_factory=time.perf_counter)
    first: float = 0.0  # time of the first token
    latest: float = 0.0
    text: str = ""
    piece: Piece | None = None
    new: list[Piece] = field(default_factory=list)  # since the last update
    is_late: bool = False  # whether it took longer than REPLY_SECONDS

    def add(self, piece: Piece) -> None:
        self.latest = time.perf_counter()
        self.first = self.first or self.latest
        self.text, self.piece = self.text + piece.text, piece
        self.new.append(piece)

    def take(self) -> list[Piece]:
        """Return the pieces since the last call."""
        new, self.new = self.new, []
        return new

    @property
    def speed(self) -> float:
        """Tokens a second after the first one; 0 if there are none."""
        seconds = self.latest - self.first
        return (self.piece.n_new - 1) / seconds if self.piece and seconds > 0 else 0.0

    def line(self, block_size: int) -> str:
        piece = self.piece
        if piece is None:
            return "reading ..."
        used = min(piece.n_prompt + piece.n_new, block_size)  # a base model may exceed it
        parts = [
            f"{piece.n_new} token{'' if piece.n_new == 1 else 's'}",
            *([f"{self.speed:,.0f} tokens/s"] if self.speed > 0 else []),
            f"first token after {1000 * (self.first - self.started):,.0f} ms",
            f"context {used} of {block_size}, {block_size - used} left",
        ]
        if piece.n_dropped:
            parts.append(f"the oldest {piece.n_dropped} messages no longer fit and were left out")
        if piece.finish and self.is_late:
            parts.append(f"stopped: a reply may take {REPLY_SECONDS:.0f} s")
        elif piece.finish:
            parts.append(FINISH[piece.finish])
        return " · ".join(parts)


async def stream(engine: Engine, request: Request, stop: Stop) -> AsyncIterator[Progress]:
    """Let the engine answer a request; yield the progress at most every YIELD_SECONDS.

    However this generator ends (Stop, a closed tab, an error), the computation ends too.
    """
    progress, shown = Progress(), 0.0

    def expire() -> None:
        progress.is_late = True
        stop.set()

    timer = asyncio.get_running_loop().call_later(REPLY_SECONDS, expire)
    try:
        async for _, piece in answers(engine, [request], stop):
            progress.add(piece)
            if piece.finish or progress.latest - shown > YIELD_SECONDS:
                shown = progress.latest
                yield progress
    finally:
        timer.cancel()
        stop.set()


class Generations:
    """The running generation of each client (a browser tab), so that Stop can find it."""

    def __init__(self) -> None:
        self.running: dict[Client, tuple[Stop, asyncio.Event]] = {}

    @asynccontextmanager
    async def begin(self, client: Client, stop: Stop) -> AsyncIterator[None]:
        """Register a client's generation for the duration of the block; end its previous one."""
        await self.discard(client)
        ended = asyncio.Event()
        self.running[client] = stop, ended
        try:
            yield
        finally:
            ended.set()
            if self.is_current(client, stop):
                del self.running[client]

    def is_current(self, client: Client, stop: Stop) -> bool:
        """Return whether the client still wants the text of this generation."""
        return self.running.get(client, (None,))[0] is stop

    def stop(self, client: Client) -> None:
        """End the client's generation and keep the text it has written."""
        if client in self.running:
            self.running[client][0].set()

    async def discard(self, client: Client) -> None:
        """End the client's generation; drop its text once the last update is sent."""
        if client in self.running:
            stop, ended = self.running.pop(client)
            stop.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), timeout=1.0)
