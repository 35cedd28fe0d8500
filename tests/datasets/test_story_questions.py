"""Questions about stories: asked of what is there, and answered by the text."""

import pytest

from gptcore.text.chat_template import messages_of
from training.datasets.story_questions import ask_about_story, questions

STORY = (
    "Once upon a time there was a little girl named Lily. Lily wanted a red kite. One day she saw "
    'a shop with many kites. "Can I have one?" she asked. Her mom said yes, and they bought the '
    "biggest kite of all. They went to the hill and ran with it until the sun went down and the "
    "stars came out. Lily was happy all day and never forgot the wind."
)
CHAT = messages_of(["Hi!", "Hello!", "Tell me a story.", STORY, "Thanks!", "You are welcome."])


class First:
    """In place of random.Random: always the first choice."""

    def choice(self, items):
        return items[0]


def test_each_answer_stands_in_the_story() -> None:
    assert questions(STORY, First()) == [
        ("Who is the story about?", "It is about a little girl named Lily."),
        ("What was the name of the girl?", "The girl's name is Lily."),
        ("What did Lily want?", "Lily wanted a red kite."),
        ("How did the story end?", "At the end: Lily was happy all day and never forgot the wind."),
    ]


def test_a_hero_without_a_name_is_told_by_its_kind() -> None:
    story = "Once upon a time, there was a red car. It was fast."
    assert questions(story, First()) == [("Who is the story about?", "It is about a red car.")]


def test_questions_follow_the_story_and_are_the_same_each_time() -> None:
    [asked] = ask_about_story(CHAT)
    assert asked[:4] == CHAT[:4] and len(asked) in (6, 8, 10)
    assert [asked] == list(ask_about_story(CHAT))
    assert [m["role"] for m in asked[4:]] == ["user", "assistant"] * (len(asked[4:]) // 2)


@pytest.mark.parametrize("document", ["a plain text", CHAT[:2]], ids=["text", "no story"])
def test_without_a_story_nothing_is_asked(document) -> None:
    assert not list(ask_about_story(document))
