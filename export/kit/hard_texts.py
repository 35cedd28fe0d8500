"""Texts that are hard for a tokenizer, drawn from a seed: to compare two tokenizers by.

>>> len(list(hard_texts(3)))
3
"""

import random
from collections.abc import Iterator

FRAGMENTS = [
    "the quick brown fox", "Hello", "don't", "DON'T", "I'Ve", "we'LL", "'ſ", "'S", "'s", "'é",
    "’s", "'", "''re", "naïve", "Straße", "ﬁ", "İ", "ı", "日本語", "한국어", "ไทย", "हिन्दी",
    "e\u0301", "1", "12", "123", "1234", "3.14159", "٣٤٥", "²³", "Ⅻ", "½", "🙂", "👩‍👩‍👧", "🇩🇪",
    "\U0001f3fd", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\v", "\f",
    "\x00", "\x1c", "\x1f", "\x7f", "\x85", "\u00a0", "\u1680", "\u180e", "\u2003", "\u2028",
    "\u200b", "\ufeff", "\ufffd", "\ufffe", "\u0378", "\U000e0001", "\U0010ffff", "!", "...",
    "?!\n\n", "{}[]", "_", "-", "<", "|", "|>", "<end>", "end|>",
]  # fmt: skip


def hard_texts(n: int, seed: int = 0) -> Iterator[str]:
    """Yield n texts of words, marks, control characters and any other characters, mixed."""
    chance = random.Random(seed)

    def character() -> str:
        kind = chance.random()
        if kind < 0.4:  # ASCII, its control characters too
            return chr(chance.randrange(0x80))
        limit = chance.choice((0x250, 0x3000, 0x10000, 0x20000, 0x34000, 0x110000))
        point = chance.randrange(limit)
        return chr(point if not 0xD800 <= point < 0xE000 else point - 0x800)

    for _ in range(n):
        share = chance.random()  # of single characters among the fragments
        yield "".join(
            character() if chance.random() < share else chance.choice(FRAGMENTS)
            for _ in range(chance.randrange(1, 30))
        )
