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
    return tqdm(items, doing, total, unit=unit, mininterval=interval(), delay=delay, **form)


def tell_stage(what: str) -> None:
    """Print what begins where neither bar nor clock shows it at once: in a log."""
    if interval() >= LOGGED_S:
        print(f"{what} ...", flush=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show `what`, and the seconds that have passed, on standard error until the context ends.

    Whoever watches sees it at once: the import of a large package may hold up all threads.
    """

    def begin() -> tqdm:
        return tqdm(desc=what, bar_format="{desc}: {elapsed}", leave=False)

    clock = begin() if interval() < LOGGED_S else None

    def show(ended: Event) -> None:
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
