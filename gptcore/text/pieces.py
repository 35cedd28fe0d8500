"""Splits a text into a tokenizer's pieces; tiktoken does this inside, and does not return them.

    >>> pieces("Oh, I'm 12!", r"'m|\\p{N}| ?\\p{L}+|[^\\p{L}\\p{N}]")
    ['Oh', ',', ' I', "'m", ' ', '1', '2', '!']

It is slower than tiktoken, and the reference of what tiktoken does inside.
"""

from collections.abc import Iterator
from functools import cache

import regex
import tiktoken

WORDS = r"[\p{L}\p{N}]"
NEVER_ASSIGNED = "\uffff"  # is neither a letter nor a number in any version of Unicode


def pieces(text: str, pattern: str) -> list[str]:
    """Return the pieces; a lone surrogate becomes U+FFFD, as in tiktoken."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    # `regex` knows a newer Unicode than tiktoken: what was no letter then must not be one now.
    theirs = tiktoken_words().encode_ordinary("".join(set(text)))
    known = set(tiktoken_words().decode(theirs))
    new = set(regex.findall(WORDS, text)) - known
    seen = text.translate({ord(character): NEVER_ASSIGNED for character in new})
    return [text[slice(*match.span())] for match in regex.finditer(pattern, seen)]


def pieces_without(missing: bytes, text: str, pattern: str) -> Iterator[bytes]:
    """Yield the pieces without some bytes, as the `tokenizers` library does for bytes that a
    vocabulary lacks: what stood around them may merge."""
    parts = (piece.encode().translate(None, missing) for piece in pieces(text, pattern))
    return filter(None, parts)


@cache
def tiktoken_words() -> tiktoken.Encoding:
    """An encoding that keeps of a text only what tiktoken takes for letters and numbers."""
    singles = {bytes([byte]): byte for byte in range(256)}
    return tiktoken.Encoding(
        name="words", pat_str=WORDS, mergeable_ranks=singles, special_tokens={}
    )
