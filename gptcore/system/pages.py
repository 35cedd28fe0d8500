"""Memory in pages of 2 MB, where Linux has them.

>>> with in_large_pages():
...     weights = bytearray(2**24)
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGE = 2**21  # bytes
MADV_COLLAPSE = 25  # of Linux 6.1 and newer; an older one refuses it
ANONYMOUS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(?:\[heap\])?$", re.MULTILINE)

Span = tuple[int, int]  # addresses: of the first byte, and of the one after the last


@contextmanager
def in_large_pages() -> Iterator[None]:
    """Have what is written to new memory within the block lie in pages of 2 MB at its end.

    A token reads all weights of a model. From pages of 4 KB, which lie scattered once a machine has
    run for some hours, that takes up to 1.6 times as long (docs/log.md, 2026-11-30).
    """
    before = anonymous_memory()
    yield
    for start, end in beyond(anonymous_memory(), before):
        first, last = -(-start // LARGE) * LARGE, end // LARGE * LARGE
        if first < last:  # what is refused stays as it is
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE
            )


def anonymous_memory() -> list[Span]:
    """Return the spans of this process's memory that are of no file, in order; on Linux alone."""
    if sys.platform != "linux":
        return []
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(int(start, 16), int(end, 16)) for start, end in ANONYMOUS.findall(maps)]


def beyond(spans: list[Span], others: list[Span]) -> Iterator[Span]:
    """Yield the parts of spans that are in none of the others; both are in order.

    >>> [*beyond([(0, 9), (20, 30)], [(2, 4), (8, 22)])]
    [(0, 2), (4, 8), (22, 30)]
    """
    for start, end in spans:
        for other_start, other_end in others:
            if other_start < end and other_end > start:
                if start < other_start:
                    yield start, other_start
                start = other_end
        if start < end:
            yield start, end
