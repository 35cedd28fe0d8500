"""A progress bar for long work.

>>> list(progress([1, 2, 3], "counting"))
[1, 2, 3]
"""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

WATCHED_S, LOGGED_S = 0.2, 30.0  # seconds between two updates in a terminal and in a log file


def progress(
    items: Iterable[Any] | None = None,
    doing: str | None = None,
    total: int | None = None,
    unit: str = "it",
    *,
    delay: float = 2.0,
    **form: Any,
) -> tqdm:
    """Return the items with a progress bar on standard error, shown after `delay` seconds.

    Without items, call the bar's `update`. `form`: further arguments of tqdm.
    """
    often = WATCHED_S if sys.stderr.isatty() else LOGGED_S
    return tqdm(items, doing, total, unit=unit, mininterval=often, delay=delay, **form)
