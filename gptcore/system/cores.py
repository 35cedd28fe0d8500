"""The CPU's cores: how many threads are worth having, and what other programs leave of them.

>>> 0 < share_of_cores() <= 1.1
True
"""

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MEASURED_SECONDS = 0.06  # to choose between candidates; fewer steps choose by chance
PROBE_SECONDS = 0.05  # some ten turns of the scheduler
BUSY = 0.85  # of idle cores a program gets 0.95 and more

T = TypeVar("T")


def let_waiting_threads_sleep() -> None:
    """Ask OpenMP for threads that sleep while they wait; call it before torch is imported.

    By default they spin. On cores that another program uses, too, a spinning thread takes the
    place of the one that it waits for, and training is several times slower (docs/log.md).
    A policy that the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def thread_counts() -> list[int]:
    """The numbers of threads to try: one is best for small models, and for any on busy cores."""
    return sorted({1, os.cpu_count() or 1})


def fastest(candidates: Iterable[T], seconds: Callable[[T], float]) -> T:
    """The candidate of the fewest seconds; no more than two are in memory at a time."""
    candidates = iter(candidates)
    best = next(candidates)
    for candidate in candidates:
        best = min(best, candidate, key=seconds)
    return best


def median_seconds(step: Callable[[], object], most: int) -> float:
    """The median time of a step, of at most so many steps in MEASURED_SECONDS (8 at least).

    Only the second half counts: the first is slower, until memory and caches are warm.
    """
    times: list[float] = []
    while len(times) < most and (len(times) < 8 or sum(times) < MEASURED_SECONDS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 2 :])


def share_of_cores() -> float:
    """The part of all cores' time that this process gets, near 1 where nothing else runs."""
    n_cores = os.cpu_count() or 1
    with ThreadPoolExecutor(n_cores) as pool:
        return statistics.mean(pool.map(probe, [PROBE_SECONDS] * n_cores))


def probe(seconds: float) -> float:
    """The share of so many seconds in which this thread ran."""
    block = bytes(2**20)  # large enough for hashlib to let the other threads run
    began, computed = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        hashlib.sha256(block)
    return (time.thread_time() - computed) / (time.perf_counter() - began)


def busy_line(share: float) -> str | None:
    """One line for a person if a share of the cores is small, else None."""
    if share >= BUSY:
        return None
    return f"the cores are busy: this program gets {share:.0%} of their time and is slower for it"


def say_if_busy() -> None:
    """Print the line if other programs use the cores."""
    if line := busy_line(share_of_cores()):
        print(line, flush=True)
