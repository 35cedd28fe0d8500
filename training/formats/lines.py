"""The characters, lines and JSON values of a file of any size, a bounded part at a time.

>>> import io
>>> list(values(io.StringIO('[{"a": 1}, {"a": 2}]')))
[(1, {'a': 1}), (2, {'a': 2})]
"""

import io
import json
from collections.abc import Iterator
from itertools import chain, count
from typing import Any, TextIO

from training.formats.found import NoText, Unreadable
from training.formats.kinds import HEAD, NUL, decoded, encoding_of
from training.formats.places import File
from training.formats.rows import parse_row, without_repeats
from training.formats.texts import READ_CHARACTERS

MAX_VALUE = 1 << 24  # characters; more than a book has, and few enough for any memory


def open_text(file: File) -> TextIO:
    """Open a file of text in the encoding that its first bytes tell."""
    with file.open() as stream:
        encoding = encoding_of(stream.read(HEAD))
    return io.TextIOWrapper(file.open(), encoding, newline=None)


def head_of(file: File) -> str:
    """Return how a text begins: what kinds.kind_of looked at."""
    with file.open() as stream:
        return decoded(stream.read(HEAD))


def characters(stream: TextIO) -> Iterator[str]:
    """Yield the text in parts. Raises NoText for NUL characters."""
    while part := stream.read(READ_CHARACTERS):
        if "\0" in part:
            raise NoText(NUL)
        yield part


def numbered_lines(stream: TextIO) -> Iterator[tuple[int, str]]:
    """Yield the numbers, from 1, and texts of all lines.

    Raises Unreadable for a line of more than MAX_VALUE characters.
    """
    for number in count(1):
        line = stream.readline(MAX_VALUE + 1)
        if len(line) > MAX_VALUE:
            raise Unreadable(
                f"line {number} is longer than {MAX_VALUE:,} characters: write one document on "
                f"each line, and split this one"
            )
        if not line:
            return
        yield number, line


def values(stream: TextIO) -> Iterator[tuple[int, Any]]:
    """Yield the numbers, from 1, and values of a JSON array, or of one value as if it were in one.

    Raises Unreadable for what is not JSON, and for a value of more than MAX_VALUE characters.
    """
    decoder = json.JSONDecoder(object_pairs_hook=without_repeats)
    text = stream.read(READ_CHARACTERS).lstrip("\ufeff \t\r\n")
    if not text.startswith("["):
        text += stream.read(MAX_VALUE)
        if len(text) > MAX_VALUE:
            raise Unreadable(f"it is one JSON value of more than {MAX_VALUE:,} characters")
        yield 1, parse_row(text)
        return
    text = text[1:]
    for number in count(1):
        text = text.lstrip(", \t\r\n")
        while True:
            try:
                value, end = decoder.raw_decode(text)
                is_whole = end < len(text)  # a number at the end may go on
                reason = f"nothing follows value {number}: the array has no ] at its end"
            except Unreadable:
                raise
            except RecursionError:
                raise Unreadable(f"value {number} is nested too deeply") from None
            except ValueError as error:
                reason, is_whole = f"value {number} is not JSON ({error})", False
            if is_whole or text.startswith("]"):
                break
            more = stream.read(max(READ_CHARACTERS, len(text)))
            text = (text + more).lstrip(", \t\r\n")
            if not more or len(text) > MAX_VALUE:
                raise Unreadable(reason if not more else f"value {number} is too long")
        if text.startswith("]"):
            rest = chain([text[1:]], iter(lambda: stream.read(READ_CHARACTERS), ""))
            if any(part.strip() for part in rest):
                raise Unreadable("something follows the array's ]: write it into the array")
            return
        yield number, value
        text = text[end:]
