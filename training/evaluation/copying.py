"""Does a model copy values out of sentences? Conversations over taught and held-out structures.

>>> conversation = conversations("taught", structures(), count=1)[0]
>>> conversation.skill
'taught'

A user tells a fact with values that are drawn anew, and asks for it. The reply must have the value.
No dialogue of the training data has a held-out structure, nor a held-out verb with what follows it;
see training/dialogues/structures.py and predicates.py.
"""

import random
import re
from collections.abc import Sequence
from itertools import permutations

from training.dialogues.predicates import predicates
from training.dialogues.structures import Pair, Structure, draw, slots_of, structures
from training.dialogues.words import fill
from training.evaluation.behaviour import Conversation

COUNT = 100  # conversations of each kind
TAUGHT, HELD_OUT, VERBS = "taught structures", "held-out structures", "held-out verbs"


def copy_suite() -> list[Conversation]:
    """Return conversations over taught structures, held-out ones and held-out verbs."""
    kinds = (TAUGHT, structures()), (HELD_OUT, structures(True)), (VERBS, predicates(True))
    return [each for kind, among in kinds for each in conversations(kind, among, COUNT)]


def conversations(skill: str, among: Sequence[Structure], count: int) -> list[Conversation]:
    """Return conversations in which the user tells a fact and asks for it, the same each time."""
    rng = random.Random(skill)
    asked = [
        (structure, pair, wanted)
        for structure in among
        for pair in structure.asks
        if (wanted := asked_slots(*pair))
    ]
    order = rng.sample(asked, len(asked)) * (count // max(len(asked), 1) + 1)
    return [conversation(rng, skill, *each) for each in order[:count]]


def asked_slots(questions: list[str], answers: list[str]) -> list[str]:
    """Return the slots that every answer has and no question."""
    known = {slot for question in questions for slot in slots_of(question)}
    every = set.intersection(*(set(slots_of(answer)) for answer in answers))
    return sorted(every - known)


def conversation(
    rng: random.Random, skill: str, structure: Structure, pair: Pair, wanted: list[str]
) -> Conversation:
    values = draw(rng, structure)
    user = [fill(rng.choice(texts), **values) for texts in (structure.say, pair.asks)]
    forms = [(values[slot], fill(f"{{{slot}_s}}", **values)) for slot in wanted]
    orders = permutations([f"(?:{'|'.join(map(re.escape, either))})" for either in forms])
    return Conversation(skill, user, want="|".join(".*".join(order) for order in orders))
