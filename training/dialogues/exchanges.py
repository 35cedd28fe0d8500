"""Short exchanges and tales, written by hand, and the turns that may follow each.

`exchanges/*.txt` and `tales/*.txt` have one in each paragraph: lines of wordings with bars between
them, in turns of the user (U) and the assistant (A). Each reply fits every wording before it. Slots
are those of the structures, and {user} is the user's own name. A line "..." means that other talk
may come in between. The turns of an exchange follow each other; those of a tale are questions
about it, in any order.

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


Exchange = tuple[Turns, ...]


def read_exchange(paragraph: str) -> Exchange:
    turns, is_later, asks = [], False, []
    for line in paragraph.splitlines():
        wordings = line[3:].split(" | ")
        if line == LATER:
            is_later = True
        elif line.startswith("U: "):
            asks = wordings
        else:
            turns.append(Turns(asks, wordings, is_later))
            is_later = False
    return tuple(turns)


@cache
def exchanges(folder: str = "exchanges") -> dict[str, list[Exchange]]:
    """Return all exchanges, or all tales, by theme."""
    texts = {file.stem: file.read_text("ascii").strip() for file in (FOLDER / folder).glob("*.txt")}
    return {
        theme: [read_exchange(part) for part in texts[theme].split("\n\n")]
        for theme in sorted(texts)
    }


@cache
def asides() -> list[Exchange]:
    """Return the exchanges that need nothing told before, and so fit between any two turns."""
    everything = (each for theme in exchanges().values() for each in theme)
    return [each for each in everything if "{" not in "".join(each[0].asks)]


def new_slots(talk: Talk, turns: Exchange) -> Slots:
    """Draw the values of an exchange; the user keeps the name that was told before."""
    slots = draw_slots(talk.rng, [text for turn in turns for text in turn.asks + turn.replies])
    if "user" in slots:
        slots["user"] = talk.name or slots["user"]
        talk.memory["name"] = {"name": slots["user"]}
    return slots


def exchange(talk: Talk) -> None:
    """Add an exchange of one turn or more; one in seven turns is the last of its exchange."""
    turns = talk.rng.choice(talk.rng.choice(list(exchanges().values())))
    if talk.name and "{user}" in str(turns[1:]) and "{user}" not in str(turns[0]):
        return  # it is about a name that is not known yet
    slots = new_slots(talk, turns)
    for i, turn in enumerate(turns):
        if i and talk.chance(0.15):
            return
        if turn.is_later and talk.chance(0.6):
            talk.exchange(*talk.rng.choice(asides())[0][:2])
        talk.exchange(turn.asks, turn.replies, **slots)


def tale(talk: Talk) -> None:
    """Add a tale, questions about it, and perhaps another one."""
    (tales,) = exchanges("tales").values()
    for i, turns in enumerate(talk.rng.sample(tales, 2)):
        slots = new_slots(talk, turns)
        asks = tables()["story"]["again"] if i else turns[0].asks
        talk.exchange(asks, turns[0].replies, **slots)
        for turn in talk.rng.sample(turns[1:], min(talk.rng.choice([0, 1, 1, 2]), len(turns) - 1)):
            talk.exchange(turn.asks, turn.replies, **slots)
        if talk.chance(0.7):
            return
