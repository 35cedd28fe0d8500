"""What glibc's malloc does with freed memory; elsewhere nothing changes.

>>> return_freed_memory()
"""

import ctypes
import sys
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on in malloc.h
LARGE = 2**20  # bytes


def keep_freed_memory() -> None:
    """Keep it for the next tensors: each training step allocates the same large ones.

    Fresh pages from the system cost a fifth of a step's time on a CPU. What is free at this moment
    goes back to the system: it held other tensors, such as those of a plan's measurement.
    """
    if trim := glibc_function("malloc_trim"):
        trim(0)
    set_options({MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1})


def return_freed_memory() -> None:
    """Return each freed tensor to the system.

    By default those of up to 32 MB leave holes among the weights that stay, which grow to half of
    a model's size while its parts are converted one after the other.
    """
    set_options({MMAP_THRESHOLD: LARGE})


def set_options(options: dict[int, int]) -> None:
    if mallopt := glibc_function("mallopt"):
        for name, value in options.items():
            mallopt(name, value)


def glibc_function(name: str) -> Any:
    """Return a function of glibc; None on systems without it."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
