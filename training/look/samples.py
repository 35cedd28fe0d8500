"""Documents as a person reads them: who speaks, and what of it is learned.

>>> seen([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}])
'user: Hi assistant: «Hello!»'
"""

import random
from typing import Any

from training.formats.found import Document

SHOWN = 160  # characters of a text, or of a message
TURNS = 4  # messages of a conversation


class Draw:
    """Keeps n documents of any number, each with the same chance (Vitter 1985, algorithm R).

    >>> draw = Draw(2)
    >>> for document in ["one", "two", "three", "four"]:
    ...     draw.add(document)
    >>> len(draw.kept), draw.n_seen
    (2, 4)
    """

    def __init__(self, n: int):
        self.n, self.n_seen = n, 0
        self.kept: list[Document] = []
        self.random = random.Random(1)

    def add(self, document: Document) -> None:
        self.n_seen += 1
        place = self.random.randrange(self.n_seen)
        if len(self.kept) < self.n:
            self.kept.append(document)
        elif place < self.n:
            self.kept[place] = document


def seen(document: Document) -> str:
    """Return the beginning of a document on one line, what is learned between « and »."""
    if isinstance(document, str):
        return f"«{shortened(document)}»"
    said = [f"{message['role']}: {spoken(message)}" for message in document[:TURNS]]
    return " ".join([*said, *["..."] * (len(document) > TURNS)])


def spoken(message: dict[str, Any]) -> str:
    is_learned = message["role"] == "assistant" and message.get("weight") != 0
    text = shortened(message["content"])
    return f"«{text}»" if is_learned else text


def shortened(text: str) -> str:
    """Return the text's beginning, on one line."""
    line = text.replace("\n", "⏎")
    return line if len(line) <= SHOWN else f"{line[:SHOWN]} ..."


def beginning(document: Document) -> str:
    """Return how a document begins: what is asked in it, or its first words."""
    if isinstance(document, str):
        return shortened(document)
    asked = (message["content"] for message in document if message["role"] == "user")
    return shortened(next(asked, document[0]["content"]))
