"""Real stories, asked for by what is in them."""

from training.datasets.story_requests import ask_for_story, story_of, subject, things_in

STORY = (
    "Once upon a time there was a little fox named Tim. Tim lived in the forest. The fox had a "
    "kite. One day the kite flew into the pond. A frog found the kite, and Tim was happy. The "
    "frog was happy, too. They played with the kite until the sun went down."
)


def stories() -> list[str]:
    return [STORY.replace("kite", thing) for thing in ("drum", "ball", "lamp", "bell", "book")] * 9


def test_what_is_asked_for_is_in_the_story() -> None:
    assert things_in(STORY) == ["fox", "frog", "kite"]
    n_about = 0
    for number, story in enumerate(stories()):
        [chat] = ask_for_story(f"{story} The end of number {number}.")
        asked, told = chat[0]["content"], chat[1]["content"]
        for thing in ("drum", "ball", "lamp", "bell", "frog"):
            assert thing not in asked or thing in told or thing in asked.split(".")[0]
            n_about += thing in asked
        if "named" in asked and "begins" not in asked:
            name = asked.split("named ")[1].split()[0].strip(".?!,")
            assert name in told  # the hero's new name
    assert n_about > 10


def test_a_story_that_goes_on_begins_where_the_request_ends() -> None:
    begun = 0
    for number in range(200):
        [chat] = ask_for_story(f"{STORY} Number {number}.")
        if not chat[1]["content"].startswith("Once"):
            begun += 1
            assert "Once upon a time" in chat[0]["content"]
    assert 5 < begun < 60


def test_what_is_no_story_or_too_long_is_left_out() -> None:
    assert not list(ask_for_story("Too short."))
    assert not list(ask_for_story(STORY * 9))
    assert not list(ask_for_story([{"role": "user", "content": STORY * 2}]))
    assert story_of([{"role": "assistant", "content": STORY * 2}]) == STORY * 2


def test_a_hero_is_not_named_twice() -> None:
    import random

    found = {subject(random.Random(seed), STORY) for seed in range(60)}
    assert not [text for text in found if text.count("fox") > 1]
