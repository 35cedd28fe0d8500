"""CPU cores: how many threads to use, and how much time other programs leave.

>>> 0 < share_of_cores() <= 1.1
True
"""

import hashlib
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

MEASURED_SECONDS = 0.06  # time to measure each candidate; less gives random choices
PROBE_SECONDS = 0.05  # about ten time slices of the scheduler
CLEARLY = 0.9  # a candidate that takes less than this share of another's time is faster
SPINS = "2000"  # by which idle cores lose 2 % of the speed; GNU's own 300,000 gain it
BUSY = 0.85  # below this share the cores are busy; idle cores give 0.95 and more

CONTAINER = Path("/sys/fs/cgroup/cpu.max")  # microseconds of CPU time, and in how many of them

T = TypeVar("T")


def choose_waiting_policy() -> None:
    """On busy cores, let OpenMP's threads sleep while they wait. Call it before importing torch.

    By default they spin. On cores that another program also uses, a spinning thread takes the
    place of the thread it waits for, and training is many times slower. On idle cores, threads
    that sleep make it up to twice as slow (docs/log.md): they spin for a while, since another
    program may come later. A policy that the user has set is kept.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return
    if share_of_cores() < BUSY:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    else:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def n_cores() -> int:
    """Return how many cores this process may use: a scheduler or a container may give it fewer."""
    known = hasattr(os, "sched_getaffinity")
    n = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    try:
        quota, period = CONTAINER.read_text().split()
        return min(n, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # there is none, or its quota is "max"
        return n


def thread_counts() -> list[int]:
    """Return the numbers of threads to try: one is best for small models and on busy cores."""
    return sorted({1, n_cores()})


def fastest(candidates: Sequence[T], seconds: Callable[[T], float]) -> T:
    """Return the first candidate, or a later one that clearly takes less time than those before it.

    Measurements of a few milliseconds differ by several percent. A single candidate is not
    measured.
    """
    best, *others = candidates
    least = seconds(best) if others else 0.0
    for candidate in others:
        taken = seconds(candidate)
        if taken < CLEARLY * least:
            best, least = candidate, taken
    return best


def median_seconds(step: Callable[[], object], most: int) -> float:
    """Return the median time in seconds of at most `most` steps within MEASURED_SECONDS.

    At least 8 steps are run. Only the second half counts: the first is slower until memory and
    caches are warm.
    """
    times: list[float] = []
    while len(times) < most and (len(times) < 8 or sum(times) < MEASURED_SECONDS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 2 :])


def share_of_cores() -> float:
    """Return the share of all cores' time that this process gets; near 1 if it is alone."""
    with ThreadPoolExecutor(n_cores()) as pool:
        return statistics.mean(pool.map(probe, [PROBE_SECONDS] * n_cores()))


def probe(seconds: float) -> float:
    """Return the share of a period of `seconds` in which this thread ran."""
    block = bytes(2**20)  # large enough for hashlib to release the GIL
    began, computed = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        hashlib.sha256(block)
    return (time.thread_time() - computed) / (time.perf_counter() - began)


def busy_line(share: float) -> str | None:
    """Return one line for the user if this process's share of the cores is small, else None."""
    if share >= BUSY:
        return None
    return f"the cores are busy: this program gets only {share:.0%} of their time and runs slower"


def say_if_busy() -> None:
    """Print one line if other programs keep the cores busy."""
    if line := busy_line(share_of_cores()):
        print(line, flush=True)
