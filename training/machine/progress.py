"""A progress bar for long work, and a clock for work that cannot count its steps.

>>> list(progress([1, 2, 3], "counting"))
[1, 2, 3]
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from tqdm import tqdm

WATCHED_S, LOGGED_S = 0.2, 30.0  # seconds between two updates in a terminal and in a log file
SOON_S = 1.0  # until the first line of what takes longer, in a log file, too
EVERY_S = "GPTCORE_PROGRESS_S"  # in the environment: the seconds, for whoever reads along


def progress(
    items: Iterable[Any] | None = None,
    doing: str | None = None,
    total: int | None = None,
    unit: str = "it",
    *,
    delay: float = 1.0,
    **form: Any,
) -> tqdm:
    """Return the items with a progress bar on standard error, shown after `delay` seconds.

    Without items, call the bar's `update`. `form`: further arguments of tqdm.
    """
    first = min(SOON_S, interval())
    return Bar(items, doing, total, unit=unit, mininterval=first, delay=delay, **form)


class Bar(tqdm):
    """A bar whose first line comes soon, in a log file, too; the others keep the interval."""

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in self.iterable:
                yield item
                self.update()

    def update(self, n: float | None = 1) -> bool | None:
        is_drawn = super().update(n)
        if is_drawn:
            self.mininterval = interval()
        return is_drawn


def tell_stage(what: str) -> None:
    """Print in a log, where no clock shows it, what takes a while; of several processes, one."""
    if interval() >= LOGGED_S and os.environ.get("RANK", "0") == "0":
        print(f"{what} ...", flush=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show `what`, and the seconds that have passed, on standard error until the context ends.

    Whoever watches sees it at once: the import of a large package may hold up all threads. A log
    file has a line if it takes longer than SOON_S.
    """

    def begin() -> tqdm:
        return tqdm(desc=what, bar_format="{desc}: {elapsed}", leave=False)

    clock = begin() if interval() < LOGGED_S else None

    def show(ended: Event) -> None:
        if clock is None and not ended.wait(SOON_S):
            tell_stage(what)
        if clock is not None or not ended.wait(interval()):
            with begin() if clock is None else clock as shown:
                draw(shown, ended)

    with beside(show):
        yield


@contextmanager
def ticking(bar: tqdm) -> Iterator[None]:
    """Draw the bar again and again, so that its time goes on while a long step is taken."""
    with beside(lambda ended: draw(bar, ended)):
        yield


def draw(bar: tqdm, ended: Event) -> None:
    while not ended.wait(interval()):
        bar.refresh()


@contextmanager
def beside(show: Callable[[Event], None]) -> Iterator[None]:
    """Call `show` in a thread; the event is set when the context ends."""
    ended = Event()
    thread = Thread(target=show, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def interval() -> float:
    """Return the seconds between two updates."""
    if given := os.environ.get(EVERY_S):
        return float(given)
    return WATCHED_S if sys.stderr.isatty() else LOGGED_S
