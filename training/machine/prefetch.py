"""The next batch, made while a GPU computes.

>>> batches = Prefetch(lambda step: f"batch {step}")
>>> batches(7), batches(8)
('batch 7', 'batch 8')

The GPU would wait for its batch otherwise. A CPU gains nothing: it has the same work to do.
"""

from collections.abc import Callable
from concurrent.futures import Future
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
        future: Future[T] = Future()

        def fill() -> None:
            try:
                future.set_result(self.make(step))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=fill, daemon=True).start()  # a daemon does not delay the program's end
        return future
