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


class Turns(NamedTuple):
    """A user's turn and the reply, as wordings."""

    asks: list[str]
    replies: list[str]
    is_later: bool = False  # other talk may come before it


class Exchange(NamedTuple):
    """The turns of a paragraph, and its wordings of a system prompt."""

    turns: list[Turns]
    system: list[str]

    @property
    def texts(self) -> list[str]:
        return [*self.system, *(text for turn in self.turns for text in turn.asks + turn.replies)]


def read_exchange(paragraph: str) -> Exchange:
    found, is_later, asks = Exchange([], []), False, []
    for line in paragraph.splitlines():
        wordings = line[3:].split(" | ")
        if line == LATER:
            is_later = True
        elif line.startswith("S: "):
            found.system.extend(wordings)
        elif line.startswith("U: "):
            asks = wordings
        else:
            found.turns.append(Turns(asks, wordings, is_later))
            is_later = False
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
def asides() -> list[Turns]:
    """Return turns that need nothing told before, and so fit between any two others."""
    first = [each.turns[0] for theme in exchanges().values() for each in theme]
    return [turn for turn in first if "{" not in str(turn)]


def new_slots(talk: Talk, found: Exchange) -> Slots:
    """Draw the values of an exchange; the user keeps the name that was told before."""
    slots = draw_slots(talk.rng, found.texts)
    if "user" in slots:
        slots["user"] = talk.name or slots["user"]
        talk.memory["name"] = {"name": slots["user"]}
    return slots


def exchange(talk: Talk) -> None:
    """Add an exchange of one turn or more; one in seven turns is the last of its exchange."""
    found = talk.rng.choice(talk.rng.choice(list(exchanges().values())))
    first, *more = found.turns
    if talk.name and "{user}" in str(more) and "{user}" not in str(first):
        return  # it is about a name that is not known yet
    slots = new_slots(talk, found)
    talk.exchange(first.asks, first.replies, **slots)
    for turn in more:
        if talk.chance(0.15):
            return
        if turn.is_later and talk.chance(0.6):
            talk.exchange(*talk.rng.choice(asides())[:2])
        talk.exchange(turn.asks, turn.replies, **slots)


def tale(talk: Talk) -> None:
    """Add a tale, questions about it, and perhaps another one."""
    (tales,) = exchanges("tales").values()
    for i, found in enumerate(talk.rng.sample(tales, 2)):
        slots, (story, *more) = new_slots(talk, found), found.turns
        asks = tables()["story"]["again"] if i else story.asks
        talk.exchange(asks, story.replies, **slots)
        for turn in talk.rng.sample(more, min(talk.rng.choice([0, 1, 1, 2]), len(more))):
            talk.exchange(turn.asks, turn.replies, **slots)
        if talk.chance(0.7):
            return


def role(talk: Talk) -> None:
    """Add a system prompt, and a conversation that keeps to it."""
    (roles,) = exchanges("roles").values()
    found = talk.rng.choice(roles)
    slots = new_slots(talk, found)
    talk.messages.append({"role": "system", "content": talk.pick(found.system, **slots)})
    for turn in found.turns:
        talk.exchange(turn.asks, turn.replies, **slots)
