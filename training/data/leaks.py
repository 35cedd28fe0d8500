"""A filter that keeps the behaviour suite's questions out of the training texts.

>>> leaks([{"role": "user", "content": "What do cows eat?"}])
True
>>> list(without_leaks(["What do cows eat?"]))  # a text has no user turns
['What do cows eat?']
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from training.data.corpus import Document

SUITE = Path(__file__).parent.parent / "evaluation" / "behaviour.toml"


def normalised(text: str) -> str:
    """Return a text in lower case, with only letters, digits and single spaces.

    Apostrophes are removed; all other characters become spaces.

    >>> normalised("What's 2 + 2,  friend?")
    'whats 2 2 friend'
    """
    text = text.lower().replace("'", "").replace("’", "")
    return re.sub(r"[\W_]+", " ", text).strip()


def barred(text: str) -> set[str]:
    """Return a user turn and its sentences, normalised, without those too short to exclude."""
    parts = map(normalised, [text, *re.split(r"[.!?\n]+", text)])
    return {part for part in parts if len(part.split()) >= 4 or len(part.encode()) >= 14}


@cache
def suite_sentences() -> frozenset[str]:
    """Return the turns and sentences of the suite's users, as `barred` returns them."""
    skills = tomllib.loads(SUITE.read_text(encoding="utf-8")).values()
    turns = (text for skill in skills for told in skill["conversations"] for text in told["user"])
    return frozenset(sentence for text in turns for sentence in barred(text))


def leaks(document: Document) -> bool:
    """Return whether a user in this conversation says a sentence of the suite.

    The function compares whole turns and the sentences in them, so it finds "Hello. What do cows
    eat?", too. It compares only sentences of at least four words or fourteen bytes (the bytes are
    for other scripts and for nonsense words). Shorter ones ("hi", "thank you", "why?") occur in
    most conversations, and a model gains nothing from memorising them. Another wording of the
    same question is not a leak: the suite tests an unseen wording. Texts never leak, because
    they have no user turns.
    """
    if isinstance(document, str):
        return False
    turns = (message["content"] for message in document if message["role"] == "user")
    return any(not suite_sentences().isdisjoint(barred(text)) for text in turns)


def without_leaks(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents that do not leak."""
    return (document for document in documents if not leaks(document))
