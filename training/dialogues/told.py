"""Topics in which the user tells facts of one of many structures, and asks for them later.

>>> talk = Talk(random.Random(1))
>>> tell_facts(talk)
>>> len(talk.told)
1
"""

from training.dialogues.structures import Told, draw, kind_of, slots_of, structures
from training.dialogues.talk import Talk


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ")", '"')) else text + "."


def tell_facts(talk: Talk) -> None:
    """Let the user tell facts, perhaps with a question about them, and perhaps correct them."""
    structure = talk.rng.choice(structures())
    told = Told(structure, draw(talk.rng, structure))
    if talk.chance(0.2):
        said = sentence(talk.pick(structure.say, **told.slots))
        asks, answers = talk.rng.choice(structure.asks)
        talk.turn(f"{said} {talk.pick(asks, **told.slots)}", talk.pick(answers, **told.slots))
    else:
        talk.exchange(structure.say, structure.react, **told.slots)
    if talk.chance(0.35):
        ask_fact(talk, told)
    if structure.fixes and talk.chance(0.3):
        told = correct(talk, told)
    talk.told.append(told)


def correct(talk: Talk, told: Told) -> Told:
    """Let the user correct a value, and ask for it; return what is true then."""
    structure, slots = told
    fix = talk.rng.choice(structure.fixes)
    named = slots_of(fix.asks[0])
    for new in [slot for slot in named if slot not in structure.slots]:
        same = [old for old in structure.slots if kind_of(old) == kind_of(new)]
        if len(same) > 1:
            same = [old for old in same if old in named]
        if len(same) != 1:
            return told  # nobody knows which one
        slots = slots | {same[0]: slots[new]}
    talk.exchange(fix.asks, fix.answers, **told.slots)
    now = Told(structure, slots)
    if talk.chance(0.7):
        ask_fact(talk, now)
    return now


def ask_fact(talk: Talk, told: Told | None = None) -> None:
    """Let the user ask for a fact that was told: the given one, or any."""
    if told is None and not talk.told:
        return
    structure, slots = told or talk.rng.choice(talk.told)
    untold = structure.untold and talk.chance(0.2)
    asks, answers = talk.rng.choice(structure.untold if untold else structure.asks)
    talk.exchange(asks, answers, **slots)
