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

from gptcore.system.command_line import heeded, leave_terminal, put_back

# A closed terminal sends SIGHUP, which Windows does not have; the last is Windows' alone.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class Paused(Exception):
    """Raised after an interrupt, once the state is saved."""


class Interrupts:
    """A context in which the first Ctrl-C, SIGTERM or closed terminal only sets `received`.

    The second one ends the program at once. What is ignored, as by nohup, stays ignored.
    """

    def __enter__(self) -> "Interrupts":
        self.received = self.is_saved = False
        self.previous = {s: signal.signal(s, self.note) for s in heeded(*NAMES)}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self.restore()
        leave_terminal(number)
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
        put_back(self.previous, self.note)

    def __exit__(self, *error: object) -> None:
        self.restore()
