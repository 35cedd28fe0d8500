"""Work in a thread: the next batch, made while a GPU computes.

>>> batches = Prefetch(lambda step: f"batch {step}")
>>> batches(7), batches(8)
('batch 7', 'batch 8')

The GPU would wait for its batch otherwise. A CPU gains nothing: it has the same work to do.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Calls `make(step)` in a thread for the step after the one that is asked for."""

    def __init__(self, make: Callable[[int], T]):
        self.make = make
        self.begun: dict[int, Future[T]] = {}

    def __call__(self, step: int) -> T:
        """Return make(step); raises what it raises."""
        made = (self.begun.pop(step, None) or self.begin(step)).result()
        self.begun = {step + 1: self.begin(step + 1)}
        return made

    def begin(self, step: int) -> "Future[T]":
        return in_thread(partial(self.make, step))


def in_thread(make: Callable[[], T]) -> "Future[T]":
    """Return the future result of `make`, which a thread calls that delays no program's end."""
    future: Future[T] = Future()

    def fill() -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=fill, daemon=True).start()
    return future
