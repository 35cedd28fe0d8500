"""Topics in which somebody is in danger, or seems to be, or asks what only a professional knows.

>>> talk = Talk(random.Random(3))
>>> danger(talk)
>>> len(talk.messages) >= 2
True
"""

import random

from training.dialogues.structures import Slots, values
from training.dialogues.talk import Talk
from training.dialogues.words import a_name, tables


def danger(talk: Talk) -> None:
    """Let somebody be in acute danger; the reply sends them to help, in any topic, and plainly.

    It is whole even where the system prompt asks for short replies.
    """
    talk.manner, is_brief, talk.brief = str, talk.brief, False
    kinds = tables()["danger"]
    kind = kinds[talk.rng.choice(list(kinds))]
    talk.exchange(kind["say"], kind["reply"], **somebody(talk.rng))
    if talk.chance(0.3):
        talk.exchange(*talk.rng.choice(tables()["danger_then"]))
    talk.brief, talk.in_danger = is_brief, True


def harmless(talk: Talk) -> None:
    """Let the user say something ordinary with the words of danger: "my phone died"."""
    asks, replies = talk.rng.choice(tables()["harmless"])
    talk.exchange(asks, replies, **somebody(talk.rng))


def careful(talk: Talk) -> None:
    """Let the user ask about medicine, law or money; the reply sends them to who knows."""
    kinds = tables()["careful"]
    kind = kinds[talk.rng.choice(list(kinds))]
    talk.exchange(kind["say"], kind["reply"], **somebody(talk.rng))


def somebody(rng: random.Random) -> Slots:
    return {"name": a_name(rng), "relative": rng.choice(values()["relative"])}
