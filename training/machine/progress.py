"""The bar of long work.

>>> list(progress([1, 2, 3], "counting"))
[1, 2, 3]
"""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

WATCHED_S, LOGGED_S = 0.2, 30.0  # between two updates in a terminal, and in a log file


def progress(
    items: Iterable[Any] | None = None,
    doing: str | None = None,
    total: int | None = None,
    unit: str = "it",
    *,
    delay: float = 2.0,
    **form: Any,
) -> tqdm:
    """The items, with a bar on standard error once they take longer than `delay` seconds.

    Without items it is a bar to `update` by hand. `form`: further arguments of tqdm's.
    """
    often = WATCHED_S if sys.stderr.isatty() else LOGGED_S
    return tqdm(items, doing, total, unit=unit, mininterval=often, delay=delay, **form)
