"""Tests of the offline training corpus."""

import random
import re
import subprocess
import sys
from itertools import islice

import pytest

from training.dialogues.care import danger
from training.dialogues.generator import MAX_USER_TURNS, dialogues
from training.dialogues.manners import called
from training.dialogues.talk import Talk, alike
from training.dialogues.words import indirect, tables

COUNT = 5000


@pytest.fixture(scope="module")
def chats() -> list[list[dict[str, str]]]:
    return list(islice(dialogues(seed=1), COUNT))


def pairs(chat: list[dict[str, str]]) -> list[tuple[str, str]]:
    contents = [message["content"] for message in chat if message["role"] != "system"]
    return list(zip(contents[::2], contents[1::2], strict=True))


def test_the_same_seed_gives_the_same_dialogues_and_another_seed_gives_others() -> None:
    first = list(islice(dialogues(seed=3), 50))
    assert first == list(islice(dialogues(seed=3), 50))
    assert first != list(islice(dialogues(seed=4), 50))


def test_the_phrases_are_read_with_the_first_dialogue_not_at_the_import() -> None:
    program = """
import sys
read = []
sys.addaudithook(lambda event, args: event == "open" and read.append(str(args[0])))
from training.dialogues.generator import dialogues
assert not [name for name in read if name.endswith(".json")], read
next(dialogues(1))
assert [name for name in read if name.endswith(".json")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_turns_alternate_and_end_with_the_assistant(chats) -> None:
    for chat in chats:
        roles = [message["role"] for message in chat if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) and roles
        assert all(message["role"] != "system" for message in chat[1:])


def test_every_message_is_clean_and_the_assistants_words_are_ascii(chats) -> None:
    for message in (message for chat in chats for message in chat):
        content = message["content"]
        assert content and content == content.strip()
        assert content.isascii() or message["role"] == "user"
        assert content.replace("\ufe0f", "").isprintable()
        assert not re.search(r"[{}]|  ", content)
        assert not content.endswith("..") or message["role"] == "user"


def test_a_told_name_is_the_one_given_back(chats) -> None:
    """It was said since the user last wrote "my name is"; corrections have other words, too."""
    checked = 0
    for chat in chats:
        since = [chat[0]["content"].lower()]  # a system text may tell it, too
        for user, assistant in pairs(chat):
            if re.search(r"\bmy name is [a-z]+[.!]?( please.*)?$", user.lower()):
                since = []
            since.append(user.lower())
            asked = re.search(r"what(.?s| is| was) my name\b", user.lower()) and len(since) > 1
            if asked and (given := re.search(r"(?:name is|are) (\w+)[.!]$", assistant)):
                assert given[1].lower() in " ".join(since), chat
                checked += 1
    assert checked > COUNT / 150


def test_sums_are_right(chats) -> None:
    signs = {"plus": "+", "minus": "-", "times": "*", "x": "*", "divided by": "/"}
    checked = 0
    for chat in chats:
        for _, assistant in pairs(chat):
            found = re.match(r"(\d+) (\D+) (\d+) (?:is|=) (\d+)\b", assistant)
            if found and (sign := signs.get(found[2], found[2])) in "+-*/":
                a, b, result = int(found[1]), int(found[3]), int(found[4])
                right = {"+": a + b, "-": a - b, "*": a * b, "/": a // (b or 1)}[sign]
                assert result == right and (sign != "/" or a % b == 0), chat
                checked += 1
    assert checked > COUNT / 50


def test_each_of_two_alike_gets_its_own_answer() -> None:
    checked = 0
    for seed in range(300):
        talk = Talk(random.Random(seed))
        alike(talk)
        asked = talk.messages[-2]["content"].lower()
        two = {key.partition(" ")[2]: key for key in talk.memory if len(talk.memory) == 2}
        if named := [name for name in two if re.search(rf"\b{name}\b", asked)]:
            key = two[max(named, key=len)]  # "best friend", not "friend"
            value = talk.memory[key][tables()["personal"][key.split()[0]]["value"]]
            assert value.lower() in talk.last.lower(), talk.messages
            checked += 1
    assert checked > 200


def test_dialogues_have_a_modest_length(chats) -> None:
    turns = [len(pairs(chat)) for chat in chats]
    sizes = [sum(len(message["content"]) for message in chat) for chat in chats]
    assert 3 < sum(turns) / COUNT < 5.5
    assert max(turns) <= MAX_USER_TURNS + 4
    assert sum(size > 1600 for size in sizes) < COUNT / 500


def test_dialogues_are_nearly_all_distinct(chats) -> None:
    assert len({str(chat) for chat in chats}) > 0.97 * COUNT


def test_a_system_turn_opens_about_one_dialogue_in_five(chats) -> None:
    assert 0.15 < sum(chat[0]["role"] == "system" for chat in chats) / COUNT < 0.25


@pytest.mark.parametrize(
    "direct, other",
    [
        ("What does a cow eat?", "what a cow eats"),
        ("How many legs does a spider have?", "how many legs a spider has"),
        ("What does a doctor do?", "what a doctor does"),
        ("What is the capital of France?", "what the capital of France is"),
        ("What is a baby dog called?", "what a baby dog is called"),
        ("Where do I live?", "where I live"),
        ("How old am I?", "how old I am"),
        ("What is the weather like?", ""),
        ("Where are you from?", ""),
    ],
)
def test_a_question_becomes_part_of_a_sentence(direct: str, other: str) -> None:
    assert indirect(direct) == other


def test_a_manner_is_kept_in_every_reply_and_dropped_in_danger(chats) -> None:
    ends = re.compile(r'End every answer with "(.+)"\.$')
    asked = [(found[1], chat[1:]) for chat in chats if (found := ends.search(chat[0]["content"]))]
    assert len(asked) > 1
    for words, turns in asked:
        kept = [turn["content"].endswith(f" {words}") for turn in turns[1::2]]
        assert kept == sorted(kept, reverse=True)  # from a danger on, the program is serious
    talk = Talk(random.Random(1), manner=str.upper)
    talk.add("hello", "Hello!")
    danger(talk)
    assert talk.messages[1]["content"] == "HELLO!" and not talk.messages[3]["content"].isupper()


def test_a_title_stands_before_the_first_mark() -> None:
    assert called("No! I like 3.5 more.", "sir") == "No, sir! I like 3.5 more."
    assert called("Yes", "sir") == "Yes"
