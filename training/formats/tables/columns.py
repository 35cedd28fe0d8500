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

END = re.compile(r"(?<!^\w\w)(?<!^\w\w\w)[.!?。！？]$")  # of a sentence; "Nr." and "No." are names
WITHIN = re.compile(r"[!?]\s|\w{4}\.\s|[。！？].")  # where a second sentence begins
NUMBER = re.compile(r"\W*\d")  # or a date
UNSPACED = re.compile(r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff]")  # Thai, Khmer, Chinese ...
MARKS_AROUND = " \t\r\n\"'“”„«»"
WORD = re.compile(r"[^\W\d_]+")
DAY = re.compile(DATE)
LISTED = 12  # names of columns
LONGEST_NAME = 40  # characters, of one that is no question
TELLING = 5  # cells of which a first one can be odd


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


def is_header(row: list[str], below: list[list[str]]) -> bool:
    """Whether a first row has names of columns, rather than sentences, numbers or dates.

    A name may be a question, as a form's are. Then the rows below tell: a first cell stands above
    dates or numbers, or is not of its column's kind.

    >>> is_header(["Timestamp", "How was it?"], [["2026/11/28 2:02:11 PM", "Good."]])
    True
    >>> is_header(["Ask", "Is it shown?"], [["Why?", "yes"]] * 9)
    True
    >>> is_header(["Who?", "Is it you?"], [["How?", "Are you sure?"]] * 9)
    False
    """
    bare = [name.strip(" .:?!") for name in row]
    columns = [[cells[i] for cells in below if i < len(cells)] for i in range(len(row))]
    if known(bare) or any(map(is_above_numbers, row, columns)):
        return True
    kinds = {*map(kind_of_cell, row)}
    if {"statement", "number", "words"} & kinds or any(map(is_repeated, row, columns)):
        return False
    return "question" not in kinds or any(map(is_odd, row, columns))


def kind_of_cell(cell: str) -> str:
    """Return what a cell is: "number", "question", "statement", "words" or "name", or "".

    >>> [kind_of_cell(cell) for cell in ("7 pm", "Sold?", '"Well."', "Oh! Why?", "Nr.", "")]
    ['number', 'question', 'statement', 'statement', 'name', '']
    """
    cell = cell.strip(MARKS_AROUND)
    if not cell or NUMBER.match(cell):
        return "number" if cell else ""
    if not END.search(cell):
        return "name" if len(cell) <= LONGEST_NAME else "words"
    return "question" if cell[-1] in "?？" and not WITHIN.search(cell) else "statement"


def is_above_numbers(name: str, below: list[str]) -> bool:
    """Whether a first cell stands above a date, or above nothing but numbers, and is neither."""
    if name and below and DAY.match(below[0]) and not DAY.match(name):
        return True
    kinds = [kind for kind in map(kind_of_cell, below) if kind]
    is_all_numbers = len(kinds) >= TELLING and {*kinds} == {"number"}
    return is_all_numbers and kind_of_cell(name) not in ("", "number")


def is_repeated(name: str, below: list[str]) -> bool:
    """Whether a cell stands below itself, beside others, as kinds and states do."""
    return name in below and len({*below} - {""}) > 1 and name != ""


def is_odd(name: str, below: list[str]) -> bool:
    """Whether hardly any cell of a column is of the kind of its first."""
    kinds = [kind for kind in map(kind_of_cell, below) if kind]
    kind = kind_of_cell(name)
    return kind != "" and len(kinds) >= TELLING and kinds.count(kind) <= len(kinds) / 10


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
    said = [name for name in wordy if 2 * sum(map(is_said, texts[name])) >= len(texts[name])]
    if said and len(wordy) <= 2:
        return said
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


def is_said(text: str) -> bool:
    """Whether a text has several words, or a sentence's end, rather than names a thing by one word.

    >>> [is_said(text) for text in ("How so", "Hi!", "你好吗", "Ann", "a@b.org", "https://b.org/c.png")]
    [True, True, True, False, False, False]
    """
    words = [word for word in text.split() if "@" not in word and "://" not in word]
    return len(words) > 1 or text.strip()[-1] in ".!?。！？" or bool(UNSPACED.search(text))


def listed(names: Iterable[str]) -> str:
    """Return the names, the first of many; a spreadsheet may have hundreds.

    >>> listed("abc"), listed("ab")
    ("'a', 'b', 'c'", "'a' and 'b'")
    """
    shown = [*map(repr, names)]
    if len(shown) > LISTED:
        shown[LISTED:] = [f"and {len(shown) - LISTED:,} more"]
    return (" and " if len(shown) == 2 else ", ").join(shown)
