"""Facts that a user tells, and questions about them: many structures of sentences, any values.

`structures/*.txt` has a structure in each paragraph: a line that says what it is about, and lines
of templates with bars between them. Any value of a kind fills a slot, so that a model learns to
copy the value and not to know it:

    S: wordings of the same facts, each with all of the slots
    R: replies to any of them
    Q: questions about the facts => answers
    U: questions of which the answer was not told => answers
    F: a correction, with {name2} in place of {name} => a reply
    V kind: values that only this structure needs; values.json has those of all

One structure in ten is held out: no dialogue has it, and the evaluation asks what a model makes of
it (training/evaluation/copying.py).

>>> slots_of("{A_object} of {name2}'s {animal_s}")
['object', 'name2', 'animal']
"""

import hashlib
import json
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from training.dialogues.words import a_name, made_up_word

FOLDER = Path(__file__).parent / "structures"
HELD_OUT = 26  # of 256
SLOT = re.compile(r"{(?:a_)?(\w+?)(?:_s)?}", re.IGNORECASE)
NOUNS = ("object", "clothing", "vehicle", "plant")  # may have an adjective before
OPEN = (
    *NOUNS,
    "dish",
    "city",
    "game",
    "animal",
    "food",
    "street",
    "shop",
)  # may be an invented word
Slots = dict[str, str]


class Pair(NamedTuple):
    """What the user may say, and what the assistant may answer."""

    asks: list[str]
    answers: list[str]


class Structure(NamedTuple):
    """A paragraph of structures/*.txt; the module's docstring explains the fields."""

    about: str
    say: list[str]
    react: list[str]
    asks: list[Pair]
    untold: list[Pair]
    fixes: list[Pair]
    values: dict[str, list[str]]

    @property
    def slots(self) -> list[str]:
        return slots_of(self.say[0])

    @property
    def is_held_out(self) -> bool:
        return hashlib.sha256(self.about.encode()).digest()[0] < HELD_OUT


class Told(NamedTuple):
    """What the user has told: a structure and its values."""

    structure: Structure
    slots: Slots


def slots_of(template: str) -> list[str]:
    """Return the names of the slots, without their articles, plurals and capitals."""
    return list(dict.fromkeys(name.lower() for name in SLOT.findall(template)))


def kind_of(slot: str) -> str:
    """``name2`` -> ``name``"""
    return slot.rstrip("0123456789")


def read_structure(paragraph: str) -> Structure:
    """Parse a paragraph; the module's docstring explains it."""
    about, *lines = paragraph.splitlines()
    found = Structure(about, [], [], [], [], [], {})
    pairs = {"Q": found.asks, "U": found.untold, "F": found.fixes}
    for line in lines:
        key, _, text = line.partition(": ")
        if key.startswith("V "):
            found.values[key[2:]] = text.split(", ")
        elif key in pairs:
            pairs[key].append(Pair(*(part.split(" | ") for part in text.split(" => "))))
        else:
            {"S": found.say, "R": found.react}[key].extend(text.split(" | "))
    return found


@cache
def structures(held_out: bool = False) -> tuple[Structure, ...]:
    texts = [file.read_text("ascii").strip() for file in sorted(FOLDER.glob("*.txt"))]
    found = (read_structure(part) for text in texts for part in text.split("\n\n"))
    return tuple(each for each in found if each.is_held_out == held_out)


# Values.


@cache
def values() -> dict[str, list[str]]:
    return json.loads((FOLDER / "values.json").read_text("ascii"))


def one_of(rng: random.Random, kind: str) -> str:
    return rng.choice(values()[kind])


def a_time(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return f"{rng.randint(1, 12)}:{one_of(rng, 'minutes')}"
    return one_of(rng, "hour").format(one_of(rng, "count"))


def a_code(rng: random.Random) -> str:
    letters = rng.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=rng.randint(0, 2))
    return "".join(letters + rng.choices("0123456789", k=rng.randint(2, 4)))


def a_title(rng: random.Random) -> str:
    thing = one_of(rng, rng.choice(["object", "animal", "plant"]))
    words = one_of(rng, "colour"), thing, one_of(rng, "city"), made_up_word(rng)
    return one_of(rng, "title").format(*words).title()


def a_street(rng: random.Random) -> str:
    name = made_up_word(rng) if rng.random() < 0.3 else one_of(rng, "surname")
    return f"{rng.randint(1, 120)} {name} {one_of(rng, 'way')}"


def a_price(rng: random.Random) -> str:
    return f"${rng.randint(2, 30) if rng.random() < 0.5 else rng.randint(30, 900)}"


MADE: dict[str, Callable[[random.Random], str]] = {
    "name": a_name,
    "user": a_name,
    "pet_name": lambda rng: a_name(rng, "pet_names"),
    "number": lambda rng: str(int(10 ** rng.uniform(0.4, 2.99))),
    "small_number": lambda rng: rng.choice([one_of(rng, "count"), str(rng.randint(2, 12))]),
    "price": a_price,
    "time": a_time,
    "date": lambda rng: f"{one_of(rng, 'month')} {rng.randint(1, 31)}",
    "year": lambda rng: str(rng.randint(1985, 2025)),
    "code": a_code,
    "title": a_title,
    "street": a_street,
    "made_up_word": lambda rng: made_up_word(rng).lower(),
    "company": lambda rng: made_up_word(rng) + one_of(rng, "of_company"),
    "band_name": lambda rng: f"The {one_of(rng, 'animal').title()} {made_up_word(rng)}s",
    "duration": lambda rng: f"{one_of(rng, 'count')} {one_of(rng, 'span')}",
    "distance": lambda rng: f"{rng.randint(2, 90)} {rng.choice(['miles', 'kilometers'])}",
}


def a_value(rng: random.Random, kind: str, own: dict[str, list[str]]) -> str:
    if kind in own:
        return rng.choice(own[kind])
    if kind in MADE:
        return MADE[kind](rng)
    if kind in OPEN and rng.random() < 0.1:
        word = made_up_word(rng)
        return word if kind == "city" else word.lower()
    value = rng.choice(values()[kind])
    if kind in NOUNS and rng.random() < 0.25:
        return f"{rng.choice(values()['quality'])} {value}"
    return value


def is_part(words: str, text: str) -> bool:
    return f" {words} " in f" {text} "


def draw(rng: random.Random, structure: Structure) -> Slots:
    """Draw values for all slots of a structure, also those of its corrections."""
    fixes = [text for pair in structure.fixes for text in [*pair.asks, *pair.answers]]
    return draw_slots(rng, [*structure.say, *fixes], structure.values)


def draw_slots(
    rng: random.Random,
    templates: list[str],
    own: dict[str, list[str]] | None = None,
    known: Slots | None = None,
) -> Slots:
    """Draw values for all slots of some templates.

    All are different, and none is a part of another, as "tea" is of "green tea". `own` has values
    of a kind that stand in for the usual ones, and `known` the values of slots that have one.
    """
    drawn: Slots = dict(known or {})
    slots = dict.fromkeys(slot for text in templates for slot in slots_of(text))
    for slot in [slot for slot in slots if slot not in drawn]:
        value = a_value(rng, kind_of(slot), own or {})
        while any(is_part(value, other) or is_part(other, value) for other in drawn.values()):
            value = a_value(rng, kind_of(slot), own or {})
        drawn[slot] = value
    return drawn
