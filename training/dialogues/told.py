"""Topics in which the user tells facts of one of many structures, and asks for them later.

>>> import random
>>> talk = Talk(random.Random(1))
>>> tell_facts(talk)
>>> len(talk.told)
1
"""

from training.dialogues.predicates import predicates
from training.dialogues.structures import Told, draw, kind_of, slots_of, structures
from training.dialogues.talk import Talk

LONGEST = 5  # turns in which many facts are told and asked for


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ")", '"')) else text + "."


def new_facts(talk: Talk) -> Told:
    """Draw facts of another kind than those that were told."""
    known = {each.structure.about.split()[0] for each in talk.told}
    among = predicates() if talk.chance(0.5) else structures()
    structure = talk.rng.choice([each for each in among if each.about.split()[0] not in known])
    return Told(structure, draw(talk.rng, structure))


def tell_facts(talk: Talk) -> None:
    """Let the user tell facts, perhaps with a question about them, and perhaps correct them."""
    told = new_facts(talk)
    structure = told.structure
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


def tell_many(talk: Talk) -> None:
    """Let the user tell two or three facts, in one turn or in several, and ask for them."""
    many: list[Told] = []
    for _ in range(talk.rng.choice([2, 2, 3])):
        many.append(new_facts(talk))
        talk.told.append(many[-1])
    if talk.chance(0.5):
        said = [sentence(talk.pick(structure.say, **slots)) for structure, slots in many]
        structure, slots = many[-1]
        talk.turn(" ".join(said), talk.pick(structure.react, **slots))
    else:
        for structure, slots in many:
            talk.exchange(structure.say, structure.react, **slots)
    for _ in range(LONGEST - len(many)):
        ask_fact(talk, talk.rng.choice(many))


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
        slots = slots | {same[0]: slots[new], new: slots[same[0]]}
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
    asked = f"{asks[0]} {slots}"
    if asked in talk.asked:
        return
    talk.asked.add(asked)
    talk.exchange(asks, answers, **slots)
