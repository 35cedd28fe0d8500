"""What people read: counts with their nouns, durations, words of a command, and tables.

>>> counted(1, "layer"), counted(1200, "layer"), counted(2, "loss")
('1 layer', '1,200 layers', '2 losses')
>>> duration(1.3), duration(44.4), duration(192.0), duration(8000.0)
('1 second', '44 seconds', '3.2 minutes', '2.2 hours')
>>> two_digits(120.4), two_digits(2.345), two_digits(0.4711)
('120', '2.3', '0.47')
>>> print(table([("name", "size"), ("tiny", "1"), ("large", "20")]))
name   size
tiny   1
large  20
"""

import os
import shlex
from collections.abc import Sequence
from subprocess import list2cmdline


def counted(n: int, noun: str) -> str:
    ending = "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{ending * (n != 1)}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return counted(round(seconds), "second")
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def two_digits(n: float) -> str:
    """Return a number with at least two significant digits, never in scientific notation."""
    return f"{n:.0f}" if n >= 10 else f"{n:.2g}"


def word(argument: object) -> str:
    """Return a path as one word of a command that is printed to be pasted into a terminal."""
    return list2cmdline([str(argument)]) if os.name == "nt" else shlex.quote(str(argument))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as lines with aligned columns; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
