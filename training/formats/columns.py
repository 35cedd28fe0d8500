"""Which row of a table names its columns, and which of these are meant.

>>> guess([{"Frage?": "Wer?", "Antwort!": "Niemand."}])
['Frage?', 'Antwort!']
"""

import re
from collections.abc import Iterable
from typing import Any

from training.formats.chats.forms import DATE
from training.formats.chats.tabular import WRITERS, Row
from training.formats.found import Unreadable
from training.formats.rows import (
    BESIDE,
    CONVERSATIONS,
    MEDIA,
    NAME_COLUMNS,
    PAIRS,
    SYSTEM,
    TEXTS,
    WANTED,
)

SPOKEN = re.compile(r"(?<!^\w\w)(?<!^\w\w\w)[.!?。！？]$|^\W*\d")  # no name; "Nr." and "No." are
WORD = re.compile(r"[^\W\d_]+")
DAY = re.compile(DATE)
LISTED = 12  # names of columns


def is_title(row: list[str], below: list[str]) -> bool:
    """Whether a first row has one cell alone, above a table.

    Of two cells it is the first, as numbered rows have a name above the second alone.

    >>> is_title(["Our questions"], ["Question", "Answer"]), is_title(["text"], ["Hi, you"])
    (True, False)
    >>> is_title(["Our questions", ""], ["Question", "Answer"]), is_title(["", "said"], ["0", "Hi"])
    (True, False)
    """
    is_alone = sum(map(bool, row)) == 1 and not known(row)
    is_above_more = len(below) > 1 and sum(map(bool, map(str.strip, below))) != 1  # or a gap
    return is_alone and (len(row) > 2 or (row[0] != "" and is_above_more))


def is_header(row: list[str], below: list[str]) -> bool:
    """Whether a first row has names of columns, rather than sentences, numbers or dates.

    The names that a form gives are its questions; the row below them begins with a date.

    >>> is_header(["Timestamp", "How was it?"], ["2026/11/28 2:02:11 PM", "Good."])
    True
    """
    bare = [name.strip(" .:?!") for name in row]
    is_named = all(len(name) <= 40 and not SPOKEN.search(name) for name in row)
    is_dated = any(DAY.match(cell) and not DAY.match(name) for name, cell in zip(row, below))
    return bool(known(bare)) or is_named or is_dated


def known(columns: list[str]) -> list[str]:
    """Return the columns whose names say what they hold, as rows.document_of takes them."""
    keys = {name.strip().lower(): name for name in columns}
    kinds = [*zip(CONVERSATIONS), *PAIRS, ("chosen",), *zip(TEXTS)]
    found = next((kind for kind in kinds if {*kind} <= {*keys}), ())
    of_pair = (*BESIDE[: 1 + ("instruction" in found)], "history")
    of_chat = (*SYSTEM, *WANTED, *MEDIA, *(of_pair if len(found) == 2 else ("chosen",)))
    beside = of_chat if found and found[0] not in TEXTS else ()
    return [keys[name] for name in dict.fromkeys((*found, *beside)) if name in keys]


def guess(rows: list[Row]) -> list[str]:
    """Return the columns that hold texts: one, or question and answer.

    Raises Unreadable if there are none, or more than two.
    """
    texts = {name: texts_in([row.get(name) for row in rows]) for name in rows[0]}
    wordy = [name for name, found in texts.items() if 2 * len(found) > len(rows)]
    if pair := pair_among(wordy):
        return pair
    # Where most texts are there more than once, they are kinds, states or names of people.
    wordy = [name for name in wordy if 2 * len({*texts[name]}) > len(texts[name])]
    wordy = [name for name in wordy if name.strip().lower() not in WRITERS]
    if len(wordy) in (1, 2):
        return wordy
    raise Unreadable(f"its columns are {listed(rows[0])}, and none is known: {NAME_COLUMNS}")


def pair_among(names: list[str]) -> list[str]:
    """Return the only two names that have, beside other words, those of a pair; or none.

    >>> pair_among(["Customer question", "Our answer", "Handled by"])
    ['Customer question', 'Our answer']
    """
    for pair in PAIRS:
        found = [[n for n in names if word in WORD.findall(n.lower())] for word in pair]
        if [len(one) for one in found] == [1, 1] and found[0] != found[1]:
            return [found[0][0], found[1][0]]
    return []


def texts_in(cells: list[Any]) -> list[str]:
    """Return those cells that hold words, rather than numbers, dates or what names a thing."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    return [t for t in texts if sum(map(str.isalpha, t)) > sum(map(str.isdigit, t))]


def listed(names: Iterable[str]) -> str:
    """Return the names, the first of many; a spreadsheet may have hundreds.

    >>> listed("abc"), listed("ab")
    ("'a', 'b', 'c'", "'a' and 'b'")
    """
    shown = [*map(repr, names)]
    if len(shown) > LISTED:
        shown[LISTED:] = [f"and {len(shown) - LISTED:,} more"]
    return (" and " if len(shown) == 2 else ", ").join(shown)
