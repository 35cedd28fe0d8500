"""The structures of sentences with open slots, and the probe that asks for what was told."""

import random
import re
from itertools import chain, islice

import pytest

from training.dialogues.care import careful, danger, harmless
from training.dialogues.exchanges import exchange, exchanges, tale
from training.dialogues.generator import LONGEST, dialogues
from training.dialogues.predicates import predicates, structures_of
from training.dialogues.structures import Structure, Told, draw, kind_of, slots_of, structures
from training.dialogues.talk import Talk
from training.dialogues.told import correct, tell_facts, tell_many
from training.dialogues.words import fill, tables
from training.evaluation.behaviour import Reply, converse
from training.evaluation.copying import COUNT, HELD_OUT, TAUGHT, VERBS, copy_suite

ALL = [*structures(), *structures(held_out=True)]


def told_by_all(wordings: list[str]) -> set[str]:
    return set.intersection(*(set(slots_of(text)) for text in wordings))


@pytest.mark.parametrize("structure", ALL, ids=lambda each: each.about)
def test_each_wording_says_what_is_asked_for(structure: Structure) -> None:
    told = told_by_all(structure.say)
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


def test_a_past_that_looks_like_its_base_is_a_past() -> None:
    structure = structures_of("put put | the lamp {place_at_home} ? where _ the lamp > here")[1]
    assert structure.asks[0].asks[0] == "Where did my {relative} put the lamp?"


def test_a_talk_tells_facts_of_both_kinds() -> None:
    heads = {each.about for each in predicates()}
    told = []
    for seed in range(200):
        talk = Talk(random.Random(seed))
        tell_facts(talk)
        told.append(talk.told[0].structure.about in heads)
    assert 60 < sum(told) < 140


def test_held_out_structures_are_a_tenth_and_in_no_dialogue() -> None:
    taught, held_out = structures(), structures(held_out=True)
    assert 0.05 < len(held_out) / len(ALL) < 0.2
    assert not {each.about for each in taught} & {each.about for each in held_out}
    said = " ".join(turn["content"] for chat in islice(dialogues(7), 3000) for turn in chat)
    plain = [re.sub(r"{\w+}", "", text) for each in held_out for text in each.say]
    longest = [max(re.split(r" {2,}", text), key=len).strip() for text in plain]
    assert not [text for text in longest if len(text) > 25 and text in said]


@pytest.mark.parametrize("held_out", [False, True])
def test_what_people_do_is_said_of_every_subject(held_out: bool) -> None:
    lines = {each.about for each in predicates(held_out)}
    assert len(predicates(held_out)) == 7 * len(lines) and len(lines) >= 15
    assert not lines & {each.about for each in predicates(not held_out)}
    for structure in predicates(held_out):
        told = set(slots_of(structure.say[0]))
        values = draw(random.Random(3), structure)
        for pair in [*structure.asks, *structure.untold, *structure.fixes]:
            for text in [*pair.asks, *pair.answers]:
                assert re.search(r"[.?!:]$|^[a-z]", text) and "_" not in fill(text, **values)
            assert all(
                set(slots_of(text)) <= told for text in pair.answers if pair.asks[0][-1] == "?"
            )


def test_verbs_agree_with_their_subjects() -> None:
    line = "be was | in {city} ? where > in {city}"
    i, relative, *_, we = structures_of(line)
    assert (i.say[0], i.asks[0].asks[0], i.asks[0].answers[-1]) == (
        "I was in {city}.", "Where was I?", "You were in {city}."
    )  # fmt: skip
    assert (we.say[0], we.asks[0].asks[0]) == ("We were in {city}.", "Where were we?")
    assert "Do you remember where my {relative} was?" in relative.asks[0].asks
    i, relative, *_ = structures_of("have has | {a_animal} ? which animal > {a_animal}")
    assert (i.say[0], i.asks[0].asks[0]) == ("I have {a_animal}.", "Which animal do I have?")
    assert "Who has {a_animal}?" in relative.asks[2].asks
    assert relative.asks[-1].asks == ["Does my {relative} have {a_animal2}?"]
    i, *_ = structures_of("buy bought | {a_object} ? what > {a_object}")
    assert (i.asks[0].asks[0], i.asks[0].answers[0]) == ("What did I buy?", "{A_object}.")


def test_after_a_correction_the_new_value_is_true_and_the_old_one_is_not() -> None:
    n_corrected = 0
    for structure in [*structures(), *predicates()]:
        talk = Talk(random.Random(1))
        told = Told(structure, draw(talk.rng, structure))
        now = correct(talk, told).slots if structure.fixes else told.slots
        changed = [slot for slot in structure.slots if now[slot] != told.slots[slot]]
        assert sorted(now.values()) == sorted(told.slots.values()), "the two values are swapped"
        n_corrected += bool(changed)
        no = [pair for pair in structure.asks if pair.answers[0].startswith("No")]
        for question in (fill(text, **now) for pair in no for text in pair.asks):
            for slot in changed:
                assert not re.search(rf"\b{re.escape(now[slot])}\b", question), question
    assert n_corrected > 800


def test_facts_that_are_told_together_are_asked_for() -> None:
    for seed in range(300):
        talk = Talk(random.Random(seed))
        tell_many(talk)
        assert len(talk.told) in (2, 3) and len(talk.messages) // 2 <= LONGEST
        assert len({each.structure.about.split()[0] for each in talk.told}) == len(talk.told)


def test_a_copier_passes_the_probe_and_a_model_that_knows_nothing_does_not() -> None:
    suite = copy_suite()
    assert [c.skill for c in suite] == [k for k in (TAUGHT, HELD_OUT, VERBS) for _ in range(COUNT)]
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


@pytest.mark.parametrize(("folder", "fewest"), [("exchanges", 3), ("tales", 1), ("roles", 3)])
def test_exchanges_have_several_wordings_and_reply_with_what_was_told(
    folder: str, fewest: int
) -> None:
    for turns, system in chain.from_iterable(exchanges(folder).values()):
        assert bool(system) == (folder == "roles") and len(turns) <= LONGEST
        told = told_by_all(system) if system else set()
        for turn in turns:
            # A story is told to somebody who asks for another one, too.
            is_story = folder == "tales" and turn is turns[0]
            told |= told_by_all(turn.replies if is_story else turn.asks)
            assert len(set(turn.asks)) >= 3 and len(set(turn.replies)) >= fewest, turn
            assert is_story or set(slots_of(" ".join(turn.replies))) <= told, turn


def test_a_user_keeps_the_name_that_was_told() -> None:
    assert any("{user}" in found.turns[0].asks[0] for found in exchanges()["remember"])
    for seed in range(300):
        talk = Talk(random.Random(seed), memory={"name": {"name": "Zebulon"}})
        exchange(talk)
        assert talk.name == "Zebulon"


def test_a_name_that_is_remembered_was_told() -> None:
    n_told = 0
    for seed in range(1000):
        talk = Talk(random.Random(seed))
        exchange(talk)
        if talk.name:
            n_told += 1
            said = " ".join(m["content"] for m in talk.messages if m["role"] == "user")
            assert talk.name.lower() in said.lower(), talk.messages
    assert n_told > 20


def test_a_tale_is_followed_by_questions_or_another_one() -> None:
    lengths = set()
    for seed in range(200):
        talk = Talk(random.Random(seed))
        tale(talk)
        lengths.add(len(talk.messages) // 2)
        assert len(talk.messages[1]["content"].split()) > 30
    assert lengths >= {1, 2, 3, 4}
