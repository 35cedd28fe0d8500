"""Replies for an event loop: computed in the engine's thread, sent several times a second.

>>> async for progress in stream(model.engine, request):             # doctest: +SKIP
...     show(progress.text, progress.speed)
"""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from threading import Event

from gptcore.engine.generate import Piece, Request
from gptcore.engine.scheduler import Engine
from gptcore.engine.streams import answers

YIELD_SECONDS = 0.05  # between two updates: one per token would freeze browsers
# Between two updates, whoever's: each takes up to half a millisecond of the event loop.
CROWD_SECONDS = 0.02
LONGEST_SECONDS = 0.5  # between two updates in any crowd


@dataclass
class Progress:
    """A growing reply, and its figures."""

    started: float = field(default_factory=time.perf_counter)
    first: float = 0.0  # time of the first token
    latest: float = 0.0
    text: str = ""
    piece: Piece | None = None
    new: list[Piece] = field(default_factory=list)  # since the last update

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


async def stream(engine: Engine, request: Request, asker: str = "") -> AsyncIterator[Progress]:
    """Let the engine answer a request; yield the progress at most every YIELD_SECONDS.

    Where many replies are written, the updates are fewer and larger; the first one comes at once.
    However this generator ends (Stop, a closed tab, an error), the computation ends too.
    """
    progress, shown, stop = Progress(), 0.0, Event()
    try:
        async for _, piece in answers(engine, [request], stop, asker):
            progress.add(piece)
            if piece.finish or progress.latest - shown > pause(engine.n_running):
                shown = progress.latest
                yield progress
    finally:
        stop.set()


def pause(n_running: int) -> float:
    """Return the seconds between two updates of a reply while so many are running."""
    return min(max(YIELD_SECONDS, CROWD_SECONDS * n_running), LONGEST_SECONDS)
