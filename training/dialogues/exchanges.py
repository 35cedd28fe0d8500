"""Exchanges, tales and roles, written by hand, and the turns that may follow each.

`exchanges/*.txt`, `tales/*.txt` and `roles/*.txt` have one in each paragraph: lines of wordings
with bars between them, in turns of the user (U) and the assistant (A). Each reply fits every
wording before it. Slots are those of the structures, and {user} is the user's own name. A line
"..." means that other talk may come in between. The turns of an exchange follow each other; those
of a tale are questions about it, in any order; a role begins with a system prompt (S), and is a
whole dialogue.

>>> import random
>>> talk = Talk(random.Random(1))
>>> exchange(talk)
>>> talk.messages[0]["role"]
'user'
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from training.dialogues.structures import Slots, draw_slots
from training.dialogues.talk import Talk
from training.dialogues.words import tables

FOLDER = Path(__file__).parent
LATER = "..."


class Turn(NamedTuple):
    """What the user says and the reply to it, as wordings."""

    asks: list[str]
    replies: list[str]
    is_later: bool = False  # other talk may come before it


class Exchange(NamedTuple):
    """The turns of a paragraph, and its wordings of a system prompt."""

    turns: list[Turn]
    system: list[str]

    @property
    def texts(self) -> list[str]:
        return [*self.system, *(text for turn in self.turns for text in turn.asks + turn.replies)]

    @property
    def is_before_the_name(self) -> bool:
        """It supposes that the user has not told a name yet."""
        first = str(self.turns[0])
        return "{user}" not in first and ("my name" in first or "{user}" in str(self.turns))


def read_exchange(paragraph: str) -> Exchange:
    found, is_later, asks = Exchange([], []), False, []
    for line in paragraph.splitlines():
        kind, wordings = line[:3], line[3:].split(" | ")
        if line == LATER:
            is_later = True
        elif kind == "S: ":
            found.system.extend(wordings)
        elif kind == "U: ":
            asks = wordings
        elif kind == "A: ":
            found.turns.append(Turn(asks, wordings, is_later))
            is_later = False
        else:
            raise ValueError(line)
    return found


@cache
def exchanges(folder: str = "exchanges") -> dict[str, list[Exchange]]:
    """Return the exchanges, tales or roles by theme."""
    texts = {file.stem: file.read_text("ascii").strip() for file in (FOLDER / folder).glob("*.txt")}
    return {
        theme: [read_exchange(part) for part in texts[theme].split("\n\n")]
        for theme in sorted(texts)
    }


@cache
def asides() -> list[Turn]:
    """Return turns that fit between any two others: nothing is told in them or asked back."""
    everything = [each for theme in exchanges().values() for each in theme]
    return [
        each.turns[0]
        for each in everything
        if "{" not in str(each.texts) and not each.is_before_the_name
    ]


def new_slots(talk: Talk, found: Exchange) -> Slots:
    """Draw the values of an exchange; the user keeps the name that was told before."""
    known = {"user": talk.name} if talk.name else {}
    return draw_slots(talk.rng, found.texts, known=known)


def say(talk: Talk, turn: Turn, slots: Slots) -> None:
    talk.exchange(turn.asks, turn.replies, **slots)
    if "{user}" in turn.asks[0]:
        talk.memory["name"] = {"name": slots["user"]}


def exchange(talk: Talk) -> None:
    """Add an exchange of one turn or more; one in seven turns is the last of its exchange."""
    themes = list(exchanges().values())
    found = talk.rng.choice(talk.rng.choice(themes))
    while talk.name and found.is_before_the_name:
        found = talk.rng.choice(talk.rng.choice(themes))
    slots = new_slots(talk, found)
    for i, turn in enumerate(found.turns):
        if i and talk.chance(0.15):
            return
        if turn.is_later and talk.chance(0.6):
            say(talk, talk.rng.choice(asides()), {})
        say(talk, turn, slots)


def tale(talk: Talk) -> None:
    """Add a tale, questions about it, and perhaps another one."""
    (tales,) = exchanges("tales").values()
    for i, found in enumerate(talk.rng.sample(tales, 2)):
        slots = new_slots(talk, found)
        story, *more = found.turns
        say(talk, story._replace(asks=tables()["story"]["again"]) if i else story, slots)
        for turn in talk.rng.sample(more, min(talk.rng.choice([0, 1, 1, 2]), len(more))):
            say(talk, turn, slots)
        if talk.chance(0.7):
            return


def role(talk: Talk) -> None:
    """Add a system prompt, and a conversation that keeps to it."""
    (roles,) = exchanges("roles").values()
    found = talk.rng.choice(roles)
    slots = new_slots(talk, found)
    talk.messages.append({"role": "system", "content": talk.pick(found.system, **slots)})
    for turn in found.turns:
        say(talk, turn, slots)
