"""Documents as a model sees them: special tokens, and what is learned of them.

>>> from gptcore.text.tokenizer import Tokenizer
>>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
>>> seen(chat, Tokenizer.train([], 262))
'<|endoftext|><|user|>Hi<|end|><|assistant|>«Hello!<|end|>»'
"""

import random
from itertools import groupby

from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import ids_and_mask
from training.formats.found import Document

SHOWN = 400  # characters of a sample


class Draw:
    """Keeps n documents of any number, each with the same chance (Vitter 1985, algorithm R).

    >>> draw = Draw(2)
    >>> for document in ["one", "two", "three", "four"]:
    ...     draw.add(document)
    >>> len(draw.kept), draw.n_seen
    (2, 4)
    """

    def __init__(self, n: int):
        self.n, self.n_seen = n, 0
        self.kept: list[Document] = []
        self.random = random.Random(1)

    def add(self, document: Document) -> None:
        self.n_seen += 1
        place = self.random.randrange(self.n_seen)
        if len(self.kept) < self.n:
            self.kept.append(document)
        elif place < self.n:
            self.kept[place] = document


def seen(document: Document, tokenizer: Tokenizer) -> str:
    """Return a document's tokens as text, the learned ones between « and »."""
    ids, mask = ids_and_mask(document, tokenizer)
    parts = []
    for is_learned, group in groupby(zip(mask.tolist(), ids.tolist()), key=lambda pair: pair[0]):
        text = tokenizer.show(i for _, i in group)
        parts.append(f"«{text}»" if is_learned else text)
    return "".join(parts)


def shortened(text: str) -> str:
    """Return the text's beginning, on one line."""
    line = text.replace("\n", "⏎")
    if len(line) <= SHOWN:
        return line
    shown = line[:SHOWN]
    return f"{shown} ...{'»' if shown.rfind('«') > shown.rfind('»') else ''}"
