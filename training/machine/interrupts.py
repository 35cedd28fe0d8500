"""Ctrl-C and its like: a training stops after the step, and its state is saved.

>>> with Interrupts() as interrupts:
...     interrupts.received
False
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A closed terminal sends SIGHUP; Windows does not have it.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # the last is Windows' alone
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


class Paused(Exception):
    """Raised after an interrupt, once the state is saved."""


class Interrupts:
    """A context in which the first Ctrl-C, SIGTERM or closed terminal only sets `received`.

    The second one ends the program at once.
    """

    def __enter__(self) -> "Interrupts":
        self.received = self.is_saved = False
        self.previous = {s: signal.signal(s, self.note) for s in SIGNALS}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self.restore()
        if self.is_saved:
            raise Paused
        os.write(2, b"\nstopping after this step; interrupt again to stop without saving\n")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Enter a context in which an interrupt raises Paused at once."""
        if self.received:
            raise Paused
        self.is_saved = True
        try:
            yield
        finally:
            self.is_saved = False

    def restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def __exit__(self, *error: object) -> None:
        self.restore()
