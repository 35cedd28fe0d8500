"""A filter that keeps the behaviour suite's conversations out of the training texts.

>>> from gptcore.text.chat_template import messages_of
>>> leaks(messages_of(["Tell me which animals can swim well, please.", "Ducks can."]))
False
>>> list(without_leaks(["What do cows eat?"]))  # a text has no user turns
['What do cows eat?']
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from training.data.corpus import Document

SUITE = Path(__file__).with_name("behaviour.toml")
RARE_WORDS = 7  # nobody happens to say a line of so many words
ALIKE = 0.6  # share of a rare line's triples of words that a near-duplicate has

Triple = tuple[str, str, str]


class Barred(NamedTuple):
    """What the suite's users say, normalised."""

    conversations: frozenset[tuple[str, ...]]  # of several turns
    lines: tuple[str, ...]  # the rare ones
    having: dict[Triple, list[int]]  # the numbers of the rare lines with these words in a row


def normalised(text: str) -> str:
    """Return a text in lower case, with only letters, digits and single spaces.

    Apostrophes are removed; all other characters become spaces.

    >>> normalised("What's 2 + 2,  friend?")
    'whats 2 2 friend'
    """
    text = text.lower().replace("'", "").replace("’", "")
    return re.sub(r"[\W_]+", " ", text).strip()


def triples(line: str) -> set[Triple]:
    words = line.split()
    return set(zip(words, words[1:], words[2:]))


@cache
def barred() -> Barred:
    """Read the suite."""
    skills = tomllib.loads(SUITE.read_text(encoding="utf-8")).values()
    said = [tuple(map(normalised, c["user"])) for s in skills for c in s["conversations"]]
    lines = sorted({line for turns in said for line in turns if len(line.split()) >= RARE_WORDS})
    having: dict[Triple, list[int]] = {}
    for number, line in enumerate(lines):
        for triple in triples(line):
            having.setdefault(triple, []).append(number)
    return Barred(frozenset(turns for turns in said if len(turns) > 1), tuple(lines), having)


def leaks(document: Document) -> bool:
    """Return whether a user says what the suite's users say, in this conversation.

    That is a whole conversation of several turns, or a line of seven words or more, or nearly so.
    Shorter lines alone ("What do cows eat?", "thank you") are what everybody says: a model may
    learn them. Texts never leak, because they have no user turns.
    """
    if isinstance(document, str):
        return False
    turns = [normalised(m["content"]) for m in document if m["role"] == "user"]
    known = barred()
    runs = (turns[i:j] for i in range(len(turns)) for j in range(i + 2, len(turns) + 1))
    return any(map(is_rare, turns)) or any(tuple(run) in known.conversations for run in runs)


def is_rare(turn: str) -> bool:
    """Return whether a normalised turn has nearly all words of a rare line, in their order."""
    known = barred()
    found = Counter(chain.from_iterable(known.having.get(t, ()) for t in triples(turn)))
    return any(n >= ALIKE * len(triples(known.lines[line])) for line, n in found.items())


def without_leaks(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents that do not leak."""
    return (document for document in documents if not leaks(document))
