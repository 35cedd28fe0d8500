"""Long texts to documents, cut at `<|endoftext|>`, or else where a paragraph or a sentence ends.

None of the places of a cut is within a token.

>>> list(documents_of(["One line.\\n", "Another."], size=12))
['One line.\\n', 'Another.']
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from training.formats.found import Asked, Found, Item

READ_CHARACTERS = 1 << 16  # characters that are read and cut at a time
SEPARATOR = "<|endoftext|>"

# Patterns of the text up to a place where a cut does not change the tokens: no piece of the
# patterns of gptcore.text.tokenizer and cl100k spans these places. White space that contains line
# ends is one piece up to its last line end; other white space begins a piece.
PARAGRAPHS = re.compile(r"(?s).*\n[^\S\n]*\n(?=[^\S\n]*\S)")
SENTENCES = re.compile(r"(?s).*[.!?…。！？][\"')\]»”’]*(?:\n(?=[^\S\n]*\S)|(?=[ \t]))")
LINES = re.compile(r"(?s).*\n(?=[^\S\n]*\S)")
WORDS = re.compile(r"(?s).*\S(?=[ \t])")


def documents_of(parts: Iterable[str], size: int) -> Iterator[str]:
    """Yield documents of at most `size` characters."""
    rest = ""
    for part in chain.from_iterable(map(bounded, parts)):
        rest += part
        while len(rest) > size + len(SEPARATOR):
            document, rest = cut(rest, size)
            yield from [document] if document.strip() else []
    while rest:
        document, rest = cut(rest, size)
        yield from [document] if document.strip() else []


def bounded(part: str) -> Iterator[str]:
    """Yield a part in pieces, as each cut copies what follows it."""
    for start in range(0, len(part), READ_CHARACTERS):
        yield part[start : start + READ_CHARACTERS]


def cut_up(parts: Iterable[str], asked: Asked) -> Found:
    return (Item(document) for document in documents_of(parts, asked.size))


def cut(text: str, size: int) -> tuple[str, str]:
    """Return the first document of a text, and the rest of the text."""
    separator = text.find(SEPARATOR, 0, size + len(SEPARATOR))
    if separator >= 0:
        return text[:separator], text[separator + len(SEPARATOR) :].removeprefix("\n")
    if len(text) <= size:
        return text, ""
    window = text[: size + 1]  # one more character, so that the patterns see what follows the cut
    at = place_in(window, size)
    return text[:at], text[at:]


def place_in(window: str, size: int) -> int:
    """Return where to cut: after a paragraph or sentence in the latter half, else a line or word.

    Poems and tables have no sentences; they are cut at their lines.
    """
    for pattern in (PARAGRAPHS, SENTENCES):
        match = pattern.match(window)
        if match and match.end() >= size // 2:
            return match.end()
    match = LINES.match(window) or WORDS.match(window)
    return match.end() if match else size
