"""What the readers of files yield: documents, what kind of file they are in, and what is skipped.

>>> Skip("line 5", "it is not JSON")
Skip(where='line 5', reason='it is not JSON')
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gptcore.checks import UserError

# A text, or a conversation: messages with "role" and "content", and "weight": 0 where a reply of
# the assistant is read but not learned.
Document = str | list[dict[str, Any]]


class Unreadable(UserError):
    """A file, or the rest of it, gives no documents; the message says why, without its name."""


class NoText(Unreadable):
    """A file that has no text in any form: it can only be left out."""


@dataclass(frozen=True)
class Item:
    """A document, and the "source" of its row."""

    document: Document
    source: str = ""
    is_rest: bool = False  # whether it goes on with the text of the item before


@dataclass(frozen=True)
class Kind:
    """What a file turned out to be, for people: "CSV, columns question and answer"."""

    name: str
    is_cut: bool = False  # whether its documents are pieces of longer texts


@dataclass(frozen=True)
class Skip:
    """A part of a file that is not used."""

    where: str  # "line 5", "row 7", or "" for a whole file
    reason: str


@dataclass(frozen=True)
class People:
    """Who writes in an exported chat, and how many messages."""

    names: Counter[str]


@dataclass(frozen=True)
class Asked:
    """What the user says about files that cannot say it themselves."""

    me: tuple[str, ...] = ()  # whose words are learned in exported chats
    columns: tuple[str, ...] = ()  # of a table: one for texts, or question and answer
    size: int = 4096  # characters of a document that is cut from a longer text


Found = Iterator[Item | Kind | People | Skip]
