"""What is done to a text before a tokenizer's pattern splits it into pieces.

A tokenizer made elsewhere may have tokens that are found whole in any text, such as Qwen's
`<think>`, and may normalise what is between them (Unicode, annex 15: NFC writes e and an accent as
one character). Ours has none and changes nothing.

    >>> Parts(["<think>"], "NFC").split("<think>e\u0301")
    ['', '<think>', 'é']
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

import regex

from gptcore.checks import UserError

# The engine backtracks through white space that is followed by a word and uses a stack frame per
# character, so a longer run would overflow its stack.
LONGEST_RUN = 500_000
# Accents and such are sorted when a text is normalised, which takes the square of their number.
MARKS = regex.compile(r"\p{M}++")
MOST_MARKS = 1_000
Form = Literal["", "NFC"]


class Parts:
    """Splits texts at tokens that are found whole, and normalises the rest."""

    def __init__(self, tokens: Iterable[str], form: Form):
        if form not in get_args(Form):
            raise UserError(f"the tokenizer's normal form {form!r} is not supported, only NFC is")
        # of two tokens that begin at the same place, the longer one is found
        names = sorted(tokens, key=len, reverse=True)
        self._found = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
        self._form = form

    def split(self, text: str) -> list[str]:
        """Return text, token, text, ..., text; a text may be empty."""
        parts = self._found.split(text) if self._found else [text]
        if self._form:
            check_marks(text)
            parts[::2] = [unicodedata.normalize(self._form, part) for part in parts[::2]]
        return parts


def check_marks(text: str) -> None:
    """Raise UserError if more marks follow each other than any script has."""
    if any(run.end() - run.start() > MOST_MARKS for run in MARKS.finditer(text)):
        raise UserError(
            f"the text holds more than {MOST_MARKS:,} combining marks in a row: remove some"
        )


def check_runs(text: str) -> None:
    """Raise UserError if a run of white space is so long that the engine would panic."""
    if len(text) <= LONGEST_RUN:
        return
    for run in re.finditer(r"\s++", text):
        if run.end() - run.start() > LONGEST_RUN and run.end() < len(text):
            raise UserError(
                f"the text holds more than {LONGEST_RUN:,} characters of white space in a row: "
                f"remove some"
            )
