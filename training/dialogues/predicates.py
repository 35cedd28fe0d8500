"""Structures that a grammar makes: what somebody does, in the sentences of everyday talk.

Each line of predicates.txt has a verb, what follows it, and what one may ask:

    buy bought | {a_object} at the {shop} ? what > {a_object} ? where _ the {object} > at the {shop}

``_`` is where the subject and the verb stand ("where did my aunt buy the lamp"), at the end unless
given. A line gives a structure (structures.py) for each of SUBJECTS, with every wording of
predicates.json. Whole lines are held out, so that nobody is ever taught their verb's sentence.

>>> structure = structures_of("swim swims | in the {water} ? where > in the {water}")[1]
>>> structure.say[0], structure.asks[0].asks[0], structure.asks[0].answers[0]
('My {relative} swims in the {water}.', 'Where does my {relative} swim?', 'In the {water}.')
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from training.dialogues.structures import Pair, Structure, kind_of, slots_of

FOLDER = Path(__file__).parent


class Subject(NamedTuple):
    """Who does something, as the user names them and as the assistant does."""

    first: str  # how the user tells it
    later: str  # how the user asks about it
    answer: str
    third: bool = True


SUBJECTS = (
    Subject("I", "I", "you", third=False),
    Subject("my {relative}", "my {relative}", "your {relative}"),
    Subject("{name}", "{name}", "{name}"),
    Subject("my {relative} {name}", "my {relative}", "your {relative}"),
    Subject("my {acquaintance} {name}", "{name}", "{name}"),
    Subject("my {acquaintance}", "my {acquaintance}", "your {acquaintance}"),
    Subject("we", "we", "you", third=False),
)
BE = {"is": {"I": "am", "we": "are", "you": "are"}, "was": {"we": "were", "you": "were"}}


class Verb(NamedTuple):
    """``buy`` and ``bought``, ``collect`` and ``collects``, ``be`` and ``is``."""

    base: str
    finite: str

    @property
    def is_present(self) -> bool:
        return self.finite.endswith("s")

    def of(self, subject: str, third: bool) -> str:
        """Return the form that follows a subject: ``collects``, ``collect``, ``am``."""
        if self.base == "be":
            return BE[self.finite].get(subject, self.finite)
        return self.base if self.is_present and not third else self.finite

    def question(self, subject: str, third: bool) -> str:
        """Return verb and subject in a question's order: ``does my aunt collect``."""
        if self.base == "be":
            return f"{self.of(subject, third)} {subject}"
        helper = ("does" if third else "do") if self.is_present else "did"
        return f"{helper} {subject} {self.base}"


@cache
def wordings() -> dict[str, list[str]]:
    return json.loads((FOLDER / "phrases" / "predicates.json").read_text("ascii"))


@cache
def predicates(held_out: bool = False) -> tuple[Structure, ...]:
    """Return the structures of all lines, either the taught or the held-out ones."""
    lines = (FOLDER / "predicates.txt").read_text("ascii").splitlines()
    found = (structure for line in lines for structure in structures_of(line))
    return tuple(each for each in found if each.is_held_out == held_out)


def structures_of(line: str) -> list[Structure]:
    """Parse a line; return a structure for each subject."""
    head, *questions = line.split(" ? ")
    verb, _, what = head.partition(" | ")
    asked = [(question, answer) for question, answer in (each.split(" > ") for each in questions)]
    return [structure_of(head, Verb(*verb.split()), what, asked, each) for each in SUBJECTS]


def structure_of(
    about: str, verb: Verb, what: str, asked: list[tuple[str, str]], subject: Subject
) -> Structure:
    first, later, answer, third = subject
    repeated = f"{answer} {verb.of(answer, third)} {what}"
    pairs = [
        Pair(
            ask(question, verb, subject),
            [capital(short) + "."] * 3 + [capital(repeated) + "."],
        )
        for question, short in asked
    ]
    texts = wordings()
    yes = [worded(text, repeated) for text in texts["yes"]]
    pairs.append(Pair([capital(f"{verb.question(later, third)} {what}?")], yes))
    untold = []
    if third:
        who = [f"Who {verb.finite} {what}?", f"who was it that {verb.finite} {what}?"]
        pairs.append(Pair(who, [capital(answer) + ".", capital(repeated) + "."]))
        direct = {question for pair in pairs for question in pair.asks}
        other = [text.format(later) for text in texts["untold"]]
        untold = [Pair([text for text in other if text not in direct], texts["unknown"])]
    fixes = []
    if has_one_value_of_each_kind(f"{first} {what}"):
        changed = re.sub(r"{((?:a_)?\w+?)((?:_s)?)}", r"{\g<1>2\2}", what)
        no = [worded(text, repeated) for text in texts["no"]]
        pairs.append(Pair([capital(f"{verb.question(later, third)} {changed}?")], no))
        fix = f"{later} {verb.of(later, third)} {changed}"
        fixed = f"{answer} {verb.of(answer, third)} {changed}"
        said = [worded(text, fix) for text in texts["fix"]]
        fixes = [Pair(said, [worded(text, fixed) for text in texts["fixed"]])]
    say = [worded(text, f"{first} {verb.of(first, third)} {what}") for text in texts["say"]]
    react = texts["react"] + [worded(text, repeated) for text in texts["repeat"]]
    return Structure(about, say, react, pairs, untold, fixes, {})


def has_one_value_of_each_kind(text: str) -> bool:
    """Say whether it is clear which value a new one of its kind replaces."""
    kinds = [kind_of(slot) for slot in slots_of(text)]
    return len(set(kinds)) == len(kinds)


def ask(question: str, verb: Verb, subject: Subject) -> list[str]:
    """Return the wordings of a question: direct, indirect, and in a hurry."""
    _, later, _, third = subject
    before, _, after = question.partition(" _")
    direct = f"{before} {verb.question(later, third)}{after}"
    indirect = f"{before} {later} {verb.of(later, third)}{after}"
    texts = wordings()
    return [worded(text, direct) for text in texts["direct"]] + [
        worded(text, indirect) for text in texts["indirect"]
    ]


def worded(pattern: str, text: str) -> str:
    """Put a clause into a pattern, with a capital letter where it begins a sentence."""
    return pattern.replace("[S]", capital(text)).replace("[s]", text)


def capital(text: str) -> str:
    """``my {relative}`` -> ``My {relative}``, ``{a_dish}`` -> ``{A_dish}``."""
    at = 1 if text.startswith("{") else 0
    return text[:at] + text[at : at + 1].upper() + text[at + 1 :]
