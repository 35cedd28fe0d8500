"""What the behaviour suite asks is kept out of the training texts.

>>> leaks([{"role": "user", "content": "What do cows eat?"}])
True
>>> list(without_leaks(["What do cows eat?"]))  # a text has no user
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
    """Lower case, letters and digits alone, single spaces; an apostrophe leaves no gap.

    >>> normalised("What's 2 + 2,  friend?")
    'whats 2 2 friend'
    """
    text = text.lower().replace("'", "").replace("’", "")
    return re.sub(r"[\W_]+", " ", text).strip()


def barred(text: str) -> set[str]:
    """A user's turn and each sentence in it, normalised, without those too short to bar."""
    parts = map(normalised, [text, *re.split(r"[.!?\n]+", text)])
    return {part for part in parts if len(part.split()) >= 4 or len(part.encode()) >= 14}


@cache
def suite_sentences() -> frozenset[str]:
    """What the suite's users say, as `barred` cuts it."""
    skills = tomllib.loads(SUITE.read_text(encoding="utf-8")).values()
    turns = (text for skill in skills for told in skill["conversations"] for text in told["user"])
    return frozenset(sentence for text in turns for sentence in barred(text))


def leaks(document: Document) -> bool:
    """Whether a user in this chat says a sentence of the suite.

    Compared are whole turns and the sentences in them, so that "Hello. What do cows eat?" is
    found, too. Barred is a sentence of four words or of fourteen bytes, spaces included (which
    takes in other scripts, and nonsense words). What is shorter ("hi", "thank you", "why?")
    cannot be kept out of conversations, and nothing is learned from it by heart. Another wording
    of the same question is no leak: the suite asks whether its own, unseen one is understood.
    Texts have no user, so they never leak.
    """
    if isinstance(document, str):
        return False
    turns = (message["content"] for message in document if message["role"] == "user")
    return any(not suite_sentences().isdisjoint(barred(text)) for text in turns)


def without_leaks(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents that do not leak, for whatever trains on them."""
    return (document for document in documents if not leaks(document))
