"""Generation for an event loop: computed in a worker thread, sent several times a second.

>>> stop = RunStop()                                                 # doctest: +SKIP
>>> async for progress in stream(chat(model, messages, stop=stop), stop):  # doctest: +SKIP
...     show(progress.text, progress.line(model.config.block_size))
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from gptcore.generate import FINISH, Piece, Stop

REPLY_SECONDS = 300.0  # after which a reply is ended, so that others get their turn
YIELD_SECONDS = 0.05  # one update per token would freeze browsers
Client = str | None  # a browser's tab: Gradio's session_hash


@dataclass
class Progress:
    """A growing reply, and its line of statistics."""

    started: float = field(default_factory=time.perf_counter)
    first: float = 0.0  # time of the first token
    latest: float = 0.0
    text: str = ""
    piece: Piece | None = None
    is_late: bool = False  # whether it took longer than REPLY_SECONDS

    def add(self, piece: Piece, at: float) -> None:
        self.first, self.latest = self.first or at, at
        self.text, self.piece = self.text + piece.text, piece

    def line(self, block_size: int) -> str:
        piece = self.piece
        if piece is None:
            return "reading ..."
        seconds = self.latest - self.first
        speed = (piece.n_new - 1) / seconds if piece.n_new > 1 and seconds > 0 else 0.0
        used = min(piece.n_prompt + piece.n_new, block_size)  # a base model may exceed it
        parts = [
            f"{piece.n_new} token{'' if piece.n_new == 1 else 's'}",
            *([f"{speed:,.0f} tokens/s"] if speed else []),
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


async def stream(pieces: Iterator[Piece], stop: Stop) -> AsyncIterator[Progress]:
    """Compute pieces in a worker thread; yield the progress at most every YIELD_SECONDS.

    However this generator ends (Stop, a closed tab, an error), the computation ends too.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[Piece, float] | BaseException | None] = asyncio.Queue()

    def work() -> None:
        try:
            for piece in pieces:
                loop.call_soon_threadsafe(queue.put_nowait, (piece, time.perf_counter()))
            loop.call_soon_threadsafe(queue.put_nowait, None)
        except BaseException as error:  # any error must reach the waiting page
            loop.call_soon_threadsafe(queue.put_nowait, error)

    progress = Progress()

    def expire() -> None:
        progress.is_late = True
        stop.set()

    timer = loop.call_later(REPLY_SECONDS, expire)
    worker = loop.run_in_executor(None, work)
    try:
        while True:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            for item in batch:
                if isinstance(item, BaseException):
                    raise item
                if item is not None:
                    progress.add(*item)
            yield progress
            if batch[-1] is None:
                return
            await asyncio.sleep(YIELD_SECONDS)
    finally:
        timer.cancel()
        stop.set()
        await asyncio.shield(worker)


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
