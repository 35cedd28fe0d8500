"""Long texts to documents, cut at `<|endoftext|>` or else at a line end now and then.

A cut at the end of a line or of a word splits no token.

>>> list(documents_of(["One line.\\n", "Another."], size=12))
['One line.\\n', 'Another.']
"""

import re
from collections.abc import Iterable, Iterator

from training.formats.found import Asked, Found, Item

SEPARATOR = "<|endoftext|>"

# Patterns of the text up to a place where a cut does not change the tokens: no piece of the
# patterns of gptcore.text.tokenizer and cl100k spans these places. White space that contains line
# ends is one piece up to its last line end; other white space begins a piece.
LINES = re.compile(r"(?s).*\n(?=[^\S\n]*\S)")
WORDS = re.compile(r"(?s).*\S(?=[ \t])")


def documents_of(parts: Iterable[str], size: int) -> Iterator[str]:
    """Yield documents of at most `size` characters, cut at separators, line ends or word ends."""
    rest = ""
    for part in parts:
        rest += part
        while len(rest) > size + len(SEPARATOR):
            document, rest = cut(rest, size)
            yield from [document] if document.strip() else []
    while rest:
        document, rest = cut(rest, size)
        yield from [document] if document.strip() else []


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
    match = LINES.match(window) or WORDS.match(window)
    at = match.end() if match else size
    return text[:at], text[at:]
