"""Phrases with slots, and variations that imitate how people type.

>>> fill("{A_x} likes {y}.", x="owl", y="mice")
'An owl likes mice.'
>>> indirect("What does a cow eat?")
'what a cow eats'
"""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

PHRASES = Path(__file__).parent / "phrases"
CONTRACTIONS = {"What is": "What's", "I am": "I'm", "It is": "It's", "do not": "don't"}
BRITISH = {"color": "colour", "favorite": "favourite"}
PARTICLES = "(?:at|for|from|in|of|on|to|with)"
# Direct questions and their indirect forms, as in "Do you know what a cow eats?"
INDIRECT = [
    (r"How many (\w+) does (.+) have\?", r"how many \1 \2 has"),
    (
        rf"(What|Where|How|Why|What \w+) does (.+) (?P<verb>(?!{PARTICLES})\w+)( {PARTICLES})?\?",
        r"\1 \2 {verbs}\4",
    ),
    (r"(What|Where|How) do (I|you|people) (.+)\?", r"\1 \2 \3"),
    (r"How old (am|is|are) (.+)\?", r"how old \2 \1"),
    (r"What (is|was) (.+) called\?", r"what \2 \1 called"),
    (r"(What|Where|Who) (is|was) ((?:the|my|your|an?|\d+) .*\w)(?<!like)(?<!ing)\?", r"\1 \3 \2"),
]


@cache
def tables() -> dict[str, Any]:
    """Return all phrases by the name of their table."""
    found: dict[str, Any] = {}
    for file in sorted(PHRASES.glob("*.json")):
        found |= json.loads(file.read_text("ascii"))
    return found


def with_article(noun: str) -> str:
    """``cat`` -> ``a cat``, ``owl`` -> ``an owl``."""
    vowel = re.match(r"(?!uni|eu|one|use)[aeiou]|hono|hone|hour", noun, re.IGNORECASE)
    return f"{'an' if vowel else 'a'} {noun}"


def plural(noun: str) -> str:
    """``cat`` -> ``cats``, ``a city`` -> ``cities``."""
    *before, last = noun.removeprefix("an ").removeprefix("a ").split()
    irregular = tables()["facts"]["plural"]["of"]
    if last not in irregular and re.search(r"[^aeiou]y$", last):
        last = last[:-1] + "ies"
    elif last not in irregular:
        last += "es" if re.search(r"(s|x|ch|sh)$", last) else "s"
    return " ".join([*before, irregular.get(last, last)])


class Forms(dict[str, str]):
    """The values of slots, and their forms: ``a_x``, ``x_s`` for the plural, ``X``, ``A_x``."""

    def __missing__(self, key: str) -> str:
        if key[0].isupper():
            text = self[key[0].lower() + key[1:]]
            return text[:1].upper() + text[1:]
        if key.startswith("a_"):
            return with_article(self[key[2:]])
        if key.endswith("_s"):
            return plural(self[key[:-2]])
        raise KeyError(key)


def fill(template: str, **slots: str) -> str:
    """Fill ``{x}``; ``{X}``, ``{a_x}`` and ``{x_s}`` add a capital letter, an article, a plural."""
    return template.format_map(Forms(slots))


def third_person(verb: str) -> str:
    """``eat`` -> ``eats``, ``fly`` -> ``flies``, ``do`` -> ``does``."""
    if verb == "have":
        return "has"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(o|s|x|ch|sh)$", verb) else "s")


def indirect(question: str) -> str:
    """Return a question in indirect form, or "" if no rule fits it."""
    for direct, other in INDIRECT:
        if found := re.fullmatch(direct, question):
            verbs = third_person(found.groupdict().get("verb", ""))
            text = found.expand(other.replace("{verbs}", verbs))
            return text[0].lower() + text[1:]
    return ""


def wrapped(rng: random.Random, text: str) -> str:
    """Return a request with polite words around it: "Can you tell me what a cow eats?" """
    about, form = tables()["wrapping"], indirect(text)
    if form and rng.random() < 0.6:
        return rng.choice(about["indirect"]).format(form)
    if rng.random() < 0.7:
        return rng.choice(about["before"]) + text
    return text.rstrip(".!? ") + rng.choice(about["after"])


def mistyped(rng: random.Random, text: str) -> str:
    """Omit, double or swap one letter of a longer word."""
    words = [found.start() for found in re.finditer(r"\b[a-z]{7,}", text)]
    if not words:
        return text
    at = rng.choice(words) + rng.randint(1, 3)
    a, b = text[at], text[at + 1]
    return text[:at] + rng.choice(["", a + a + b, b + a, b]) + text[at + 2 :]


def as_typed(rng: random.Random, text: str) -> str:
    """Vary a text as people type it: contractions, lower case, no punctuation and so on."""
    is_request = text.endswith("?") or text.startswith(("Tell ", "Name ", "Count ", "Give "))
    if is_request and len(text) > 12 and rng.random() < 0.2:
        text = wrapped(rng, text)
    if rng.random() < 0.04:
        text = mistyped(rng, text)
    for words, chance in ((CONTRACTIONS, 0.25), (BRITISH, 0.2)):
        for long, other in words.items():
            if long in text and rng.random() < chance:
                text = re.sub(rf"\b{long}(?!n't)", other, text)
    if rng.random() < 0.5:
        return text
    if rng.random() < 0.7:
        text = text.lower()
    if rng.random() < 0.6:
        text = text.rstrip(".!? ") or text
    if rng.random() < 0.5:
        text = text.replace("'", "") or text
    return text.upper() if len(text) < 25 and rng.random() < 0.05 else text


def first_sentence(text: str) -> str:
    """Return a text's first sentence; "Yes." or "Sorry." and the one after it count as one."""
    found = re.match(r"((Yes|No|Sorry|Okay|Sure|Of course|Oh no|Well)[.!] )?.*?[.!?](?!\S)", text)
    return found[0] if found else text


def made_up_word(rng: random.Random) -> str:
    parts = tables()["syllables"]
    middle = rng.choice(parts["middle"]) if rng.random() < 0.4 else ""
    return rng.choice(parts["first"]) + middle + rng.choice(parts["last"])


def a_name(rng: random.Random, table: str = "names") -> str:
    return made_up_word(rng) if rng.random() < 0.35 else rng.choice(tables()[table])
