"""A chat in a table, as KakaoTalk's program for the Mac and others write it, to conversations.

>>> chat_columns([{"Date": "2021-05-03 14:02", "User": name, "Message": "Hi"} for name in "ABAB"])
('Date', 'User', 'Message')
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from training.formats.chats.forms import DATE, FORMS, TIME, are_people
from training.formats.chats.transcripts import (
    NO_WORDS_SAID,
    Said,
    items_of_chat,
    moment,
    oldest_first,
    order_of,
    people_of,
)
from training.formats.found import Asked, Found, Skip

TIMES = ("date", "time", "datetime", "timestamp")
WRITERS = ("user", "username", "sender", "author", "from", "nickname")
MESSAGES = ("message",)
WHEN = re.compile(rf"{DATE}\.?,?[ T]{TIME}")  # how a time begins; a zone may follow it
Row = dict[str, Any]


def chat_columns(rows: list[Row]) -> tuple[str, ...]:
    """Return which columns hold time, writer and message, if the first rows are of a chat.

    A table of letters to a shop has the same columns.
    """
    keys = {name.strip().lower(): name for name in rows[0]}
    found = [[keys[name] for name in names if name in keys] for names in (TIMES, WRITERS, MESSAGES)]
    if not all(found):
        return ()
    time, writer, message = (names[0] for names in found)
    is_talk = are_people([str(row[writer]) for row in rows])
    is_chat = is_talk and all(WHEN.match(str(row[time])) for row in rows)
    return (time, writer, message) if is_chat else ()


def items_of_table(
    rows: Iterable[tuple[str, Row | Skip]], columns: tuple[str, ...], asked: Asked
) -> Found:
    """Yield the conversations of all rows; the words of `asked.me` are the assistant's.

    Raises Unreadable if it is not said whose words are learned.
    """
    time, writer, message = columns
    skipped: list[Skip] = []
    written: list[tuple[str, Row]] = []
    for where, row in rows:
        if isinstance(row, Skip):
            skipped.append(row)
        elif is_said(row[writer], row[message]):
            written.append((where, row))
        else:
            skipped.append(Skip(where, NO_WORDS_SAID))
    times = [WHEN.match(str(row[time])) for _, row in written]
    order = order_of([found["date"] for found in times if found])
    said = [
        Said(
            row[writer].strip(),
            row[message].strip(),
            moment(found["date"], found["time"], order) if found else None,
            where,
        )
        for (where, row), found in zip(written, times)
    ]
    said = oldest_first(said)
    names = Counter(one.name for one in said)
    yield from people_of(names, asked.me, "chat in a table", f"for texts: --columns {message!r}")
    yield from items_of_chat(iter(said), asked.me, skipped)


def is_said(name: Any, text: Any) -> bool:
    """Whether a row has a name and words, rather than what stands for a picture."""
    if not (isinstance(name, str) and name.strip() and isinstance(text, str) and text.strip()):
        return False
    return not any(form.wordless.fullmatch(text.strip()) for form in FORMS)
