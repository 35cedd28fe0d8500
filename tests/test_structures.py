"""The structures of sentences with open slots, and the probe that asks for what was told."""

import random
import re
from itertools import islice

import pytest

from training.dialogues.care import careful, danger, harmless
from training.dialogues.exchanges import exchanges
from training.dialogues.generator import dialogues
from training.dialogues.structures import Structure, draw, kind_of, slots_of, structures
from training.dialogues.talk import Talk
from training.dialogues.told import ask_fact, tell_facts
from training.dialogues.words import fill, tables
from training.evaluation.behaviour import Reply, converse
from training.evaluation.copying import COUNT, HELD_OUT, TAUGHT, copy_suite

ALL = [*structures(), *structures(held_out=True)]


@pytest.mark.parametrize("structure", ALL, ids=lambda each: each.about)
def test_each_wording_says_what_is_asked_for(structure: Structure) -> None:
    told = set.intersection(*(set(slots_of(text)) for text in structure.say))
    assert len(structure.say) >= 4 and len(structure.react) >= 2 and structure.asks
    for pair in structure.asks:
        assert all(set(slots_of(text)) <= told for text in [*pair.asks, *pair.answers]), pair
        assert all(slots_of(text) for text in pair.answers), "an answer without a value"
        assert len(pair.asks) >= 3 and len(pair.answers) >= 2
    assert all(set(slots_of(text)) <= told for text in structure.react)
    for pair in structure.fixes:
        new = set(slots_of(pair.asks[0])) - set(structure.slots)
        assert {kind_of(slot) for slot in new} <= {kind_of(slot) for slot in structure.slots}
    assert all(len(set(values)) >= 14 for values in structure.values.values())
    for seed in range(5):
        values = draw(random.Random(seed), structure)
        assert len(set(values.values())) == len(values), "two slots have the same value"
        for text in [*structure.say, *structure.react, *(t for p in structure.asks for t in p[0])]:
            assert "{" not in fill(text, **values)


def test_held_out_structures_are_a_tenth_and_in_no_dialogue() -> None:
    taught, held_out = structures(), structures(held_out=True)
    assert 0.05 < len(held_out) / len(ALL) < 0.2
    assert not {each.about for each in taught} & {each.about for each in held_out}
    said = " ".join(turn["content"] for chat in islice(dialogues(7), 3000) for turn in chat)
    plain = [re.sub(r"{\w+}", "", text) for each in held_out for text in each.say]
    longest = [max(re.split(r" {2,}", text), key=len).strip() for text in plain]
    assert not [text for text in longest if len(text) > 25 and text in said]


def test_a_corrected_value_is_the_one_that_is_answered() -> None:
    n_corrected = 0
    for seed in range(3000):
        talk = Talk(random.Random(seed))
        tell_facts(talk)
        structure, slots = talk.told[0]
        first = draw(random.Random(seed), structure)  # not the same: the talk draws more
        assert set(slots) == set(first)
        ask_fact(talk, talk.told[0])
        n_corrected += any(slots[s] == slots.get(f"{s}2") for s in slots)
    assert n_corrected > 20


def test_a_copier_passes_the_probe_and_a_model_that_knows_nothing_does_not() -> None:
    suite = copy_suite()
    assert [c.skill for c in suite] == [TAUGHT] * COUNT + [HELD_OUT] * COUNT
    assert suite == copy_suite()

    def copier(messages, sampling) -> Reply:
        return Reply(messages[0]["content"], "end", 9)

    def ignorant(messages, sampling) -> Reply:
        return Reply("I do not know.", "end", 5)

    held = [converse(conversation, copier) for conversation in suite]
    assert not [r.conversation for r in held if "lacks what is wanted" in r.faults][5:]
    assert all(converse(conversation, ignorant).faults for conversation in suite)


def test_danger_is_sent_to_help_and_no_reply_asks_or_delays() -> None:
    for kind in tables()["danger"].values():
        assert len(kind["say"]) >= 60
        for reply in kind["reply"]:
            assert re.search(r"emergency|ambulance|crisis line|helpline|fire service|police", reply)
            assert "program" in reply and "?" not in reply and len(reply.split()) < 50
    for _, replies in tables()["harmless"]:
        assert not [reply for reply in replies if "emergency" in reply]
    for topic in (danger, harmless, careful):
        talk = Talk(random.Random(5))
        topic(talk)
        assert len(talk.messages) in (2, 4)


def test_exchanges_have_several_wordings_a_turn() -> None:
    for turns in exchanges():
        assert len(turns) % 2 == 0
        assert all(len(set(wordings)) >= 3 for wordings in turns)
