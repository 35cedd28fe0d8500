"""The characters, lines and JSON values of a file of any size, a bounded part at a time.

>>> import io
>>> list(values(io.StringIO('[{"a": 1}, {"a": 2}]')))
[(1, {'a': 1}), (2, {'a': 2})]
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count, islice
from typing import Any, TextIO

from training.formats.encoding import HEAD, NUL, decoded, encoding_of
from training.formats.found import NoText, Unreadable
from training.formats.places import File
from training.formats.texts import READ_CHARACTERS

BETWEEN = re.compile(r"[, \t\r\n]*")  # two values
N_LATER = 63  # parts of HEAD in which the first letter beyond ASCII may be
ROWS = json.JSONDecoder(object_pairs_hook=lambda pairs: without_repeats(pairs))
MAX_VALUE = 1 << 24  # characters; more than a book has, and few enough for any memory
MAX_PARTS = MAX_VALUE // READ_CHARACTERS


def open_text(file: File) -> TextIO:
    """Open a file of text in the encoding that its first bytes tell."""
    return io.TextIOWrapper(file.open(), text_encoding(file), newline=None)


def text_encoding(file: File) -> str:
    """Return the encoding of a file of text. Raises Unreadable for binary data."""
    with file.open() as stream:
        head = stream.read(HEAD)
        parts = iter(lambda: stream.read(HEAD), b"")
        later = islice(parts, N_LATER) if head.isascii() else ()
        return encoding_of(head + next((part for part in later if not part.isascii()), b""))


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


def whole(parts: Iterator[str], what: str) -> str:
    """Return a text that is read at once. Raises Unreadable for one that is too long for that."""
    text = "".join(islice(parts, MAX_PARTS))
    if next(parts, ""):
        most = MAX_PARTS * READ_CHARACTERS
        raise Unreadable(f"it is {what} of more than {most:,} characters: divide it")
    return text


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
    """Yield the numbers, from 1, and values of a JSON array, or of values one after another.

    A value with a key twice is an Unreadable. Raises Unreadable for what is not JSON, and for a
    value of more than MAX_VALUE characters.
    """
    text = stream.read(READ_CHARACTERS).lstrip(" \t\r\n")
    is_array = text.startswith("[")
    at, is_over = int(is_array), False  # where to go on in the text, and whether it is the last
    for number in count(1):
        while True:
            at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if is_array and text.startswith("]", at):
                check_end(text[at + 1 :], stream)
                return
            why = ""
            try:
                value, end = value_at(text, at)
                if end < len(text):  # a number at the end may go on
                    break
            except RecursionError:
                raise Unreadable(f"value {number} is nested too deeply") from None
            except ValueError as error:
                why = f" ({getattr(error, 'msg', error)})"
            if is_over and text[at:]:
                raise Unreadable(f"value {number} is not JSON{why}")
            if is_over and is_array:
                reason = f"nothing follows value {number - 1}: the array has no ] at its end"
                raise Unreadable(reason)
            if is_over:
                return
            if len(text) - at > MAX_VALUE:
                raise Unreadable(
                    f"value {number} is not JSON{why}, or is longer than {MAX_VALUE:,} characters: "
                    f"write each document on a line of its own"
                )
            more = stream.read(max(READ_CHARACTERS, len(text) - at))
            text, at, is_over = text[at:] + (more or " "), 0, not more
        yield number, value
        at = end


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Return a value and where it ends, or in its place why it cannot be one. Raises ValueError."""
    try:
        return ROWS.raw_decode(text, at)
    except Unreadable as error:
        return error, json.JSONDecoder().raw_decode(text, at)[1]


def check_end(text: str, stream: TextIO) -> None:
    """Raise Unreadable if something follows an array."""
    rest = chain([text], iter(lambda: stream.read(READ_CHARACTERS), ""))
    if any(part.strip() for part in rest):
        raise Unreadable("something follows the array's ]: write it into the array")


def parse_row(text: str) -> Any:
    """Parse one JSON value. Raises Unreadable, also for a key that an object has twice."""
    try:
        return json.loads(text, object_pairs_hook=without_repeats)
    except Unreadable:
        raise
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"it is not JSON ({getattr(error, 'msg', error)})") from None


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise Unreadable(f"it has the key {twice!r} twice, and one would be lost")
    return found
