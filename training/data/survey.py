"""A first pass over a corpus: its hash and size, and which documents are held out.

>>> found = survey(lambda: ["one text", "another", "one text"])
>>> found.n_documents, found.n_bytes, found.n_equal
(3, 23, 1)
"""

import hashlib
from array import array
from collections import Counter
from dataclasses import dataclass

import numpy as np

from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Corpus, document_number, document_text
from training.formats.found import Document
from training.machine.progress import progress

VALIDATION_SHARE = 0.05  # share of the documents held out for validation
MAX_VALIDATION_BYTES = 500_000  # a larger corpus holds out a smaller share
# Of fewer, a loss says nothing, and every document that is held out is one that is not learned: so
# small a corpus holds out one document alone.
MIN_VALIDATION_BYTES = 4000
NEARLY_ALL = 0.9  # of the chats, which have their usual system message
MOST_SYSTEMS = 1000  # different system messages that are counted
BEGINNING_BYTES = 400_000  # text that trains the tokenizer of a first estimate


@dataclass(frozen=True)
class Survey:
    """The result of a first pass over a corpus."""

    sha256: str  # of all document numbers
    n_documents: int
    n_bytes: int
    n_characters: int
    n_chats: int
    n_equal: int  # documents that occurred before
    beginning: tuple[str, ...]  # the texts of the first documents
    validation_limit: int  # documents with a lower document_number are held out
    only_held_out: Document | None  # the one of a small corpus; None for others
    usual_system: str  # the system message of nearly all chats, or ""
    n_systems: int  # different system messages, MOST_SYSTEMS at the most

    def is_validation(self, document: Document) -> bool:
        """Return whether a document is held out; equal documents are always in the same split."""
        return document_number(document) < self.validation_limit


class Surveyor:
    """Counts documents one by one."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.numbers = array("Q")  # 8 bytes each, so that millions of documents fit the memory
        self.beginning: list[str] = []
        self.lowest: tuple[int, Document] | None = None  # by its number
        self.n_bytes = self.n_characters = self.n_chats = 0
        self.systems = Counter[str]()  # how many chats begin with each of these system messages

    def add(self, document: Document) -> int:
        """Count a document, and return its bytes."""
        number = document_number(document)
        self.digest.update(number.to_bytes(8))
        self.numbers.append(number)
        if self.lowest is None or number < self.lowest[0]:
            self.lowest = number, document
        text = document_text(document)
        n_bytes = len(text.encode("utf-8"))
        if self.n_bytes < BEGINNING_BYTES:
            self.beginning.append(text)
        self.n_bytes += n_bytes
        self.n_characters += len(text)
        if not isinstance(document, str):
            self.n_chats += 1
            system = document[0]["content"] if document[0]["role"] == "system" else ""
            if system in self.systems or len(self.systems) < MOST_SYSTEMS:
                self.systems[system] += 1
        return n_bytes

    @property
    def usual_system(self) -> str:
        """The system message with which nearly all chats begin, or ""."""
        for message, n in self.systems.most_common(1):
            if n >= NEARLY_ALL * self.n_chats:
                return message
        return ""

    def survey(self, held_out: float | None = None) -> Survey:
        """Return the counts, and choose the documents that are held out.

        `held_out`: their share; by default VALIDATION_SHARE, less for a large corpus, and one
        document of a small one.
        """
        is_small = VALIDATION_SHARE * self.n_bytes < MIN_VALIDATION_BYTES and not held_out
        limit = 0 if is_small else validation_limit(self.n_bytes, held_out)
        smallest, lowest = self.lowest or (0, None)
        return Survey(
            sha256=self.digest.hexdigest(),
            n_documents=len(self.numbers),
            n_bytes=self.n_bytes,
            n_characters=self.n_characters,
            n_chats=self.n_chats,
            n_equal=len(self.numbers) - len(np.unique(np.array(self.numbers, np.uint64))),
            beginning=tuple(self.beginning),
            # At least one document is held out, and one is not.
            validation_limit=max(min(limit, max(self.numbers, default=0)), smallest + 1),
            only_held_out=lowest if is_small else None,
            usual_system=self.usual_system,
            n_systems=sum(message != "" for message in self.systems),
        )


def validation_limit(n_bytes: int, held_out: float | None = None) -> int:
    """Return the document number below which documents are held out; see Surveyor.survey."""
    share = held_out or min(VALIDATION_SHARE, MAX_VALIDATION_BYTES / max(n_bytes, 1))
    return int(share * 2**64)


def survey(corpus: Corpus, held_out: float | None = None) -> Survey:
    """Read a corpus once; see Surveyor."""
    found = Surveyor()
    for document in progress(corpus(), "reading", unit=" documents"):
        found.add(document)
    return found.survey(held_out)


def bytes_per_token(found: Survey, tokenizer: Tokenizer) -> float:
    """Estimate it from the beginning of a corpus."""
    n_tokens = sum(len(tokenizer.encode(text)) for text in found.beginning)
    return sum(len(text.encode("utf-8")) for text in found.beginning) / max(n_tokens, 1)
