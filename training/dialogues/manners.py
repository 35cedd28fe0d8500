"""Manners that a system prompt asks for, which every reply of a dialogue then has.

>>> manner = a_manner(random.Random(68))
>>> manner.prompt
'Call the user detective.'
>>> manner.of("It is five. Do you like sums?")
'It is five, detective. Do you like sums?'
"""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from training.dialogues.words import fill, made_up_word, tables


class Manner(NamedTuple):
    """What the system prompt says, and what becomes of a reply."""

    prompt: str
    of: Callable[[str], str]


def a_manner(rng: random.Random) -> Manner:
    """Draw a manner: words at the beginning or the end, a title, a way of writing, or a role."""
    kind = rng.choices(["role", *tables()["manners"]], [5, 4, 4, 4, 1, 1])[0]
    if kind == "role":
        role, kind, several = rng.choice(tables()["roles"])
        words, prompts = rng.choice(several), tables()["role_prompts"]
    else:
        role, prompts = "", tables()["manners"][kind]
        words = rng.choice(tables()["manner_words"])
        if rng.random() < 0.3:
            words = f"{made_up_word(rng)}!"
    title = rng.choice(tables()["titles"])
    slots = {"role": role, "words": words, "title": title, "do": kind, "does": f"{kind}s"}
    change: Callable[[str], str] = {
        "begin": lambda reply: f"{words} {reply}",
        "end": lambda reply: f"{reply} {words}",
        "call": lambda reply: called(reply, title),
        "capitals": str.upper,
        "small": str.lower,
    }[kind]
    return Manner(fill(rng.choice(prompts), **slots), change)


def called(reply: str, title: str) -> str:
    """Return the reply with a title before the first mark that ends a sentence."""
    return re.sub(r"(?<=\w)(?=[.!?](?:\s|$))", f", {title}", reply, count=1)
