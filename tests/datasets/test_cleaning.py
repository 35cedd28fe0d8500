"""What is fit to be learned from: ASCII, addresses, code, abuse, lengths, repeats."""

import pytest

from training.datasets.cleaning import MAX_CHAT, MAX_TEXT, MAX_TURN, clean, plain, without_repeats


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        ("“Don’t”—he said…", '"Don\'t" - he said...'),
        ("Zoë’s café, naïve", "Zoe's cafe, naive"),
        ("itâ€™s a â€œcatâ€\x9d", 'it\'s a "cat"'),
        ("one  two\t three \r\n\r\n four", "one two three\nfour"),
        ("ﬁne ½", "fine 1⁄2"),
    ],
)
def test_text_becomes_plain_ascii_where_it_can(text: str, ascii_text: str) -> None:
    assert plain(text) == ascii_text


@pytest.mark.parametrize(
    "turn",
    ["See http://a.b/c", "It is on www.x.y", "Mail a@b.org", "Look at example.com",
     "if (x) { y(); }", "a == b", "use snake_case", "def f(x)", "世界", "This is shit.",
     "", "x" * (MAX_TURN + 1)],
)  # fmt: skip
def test_a_chat_with_an_unfit_turn_is_dropped(turn: str) -> None:
    assert clean(["Hello!", "Hi!", turn, "Well."]) is None
    assert clean(["Hello!", turn]) is None


def test_a_chat_ends_with_the_assistant_and_is_cut_after_a_reply() -> None:
    chat = clean(["Hi", "Hello!", "So?"])
    assert [m["role"] for m in chat] == ["user", "assistant"]
    long = clean(["Hi", "Hello!"] * 1000)
    assert len(long) % 2 == 0 and sum(len(m["content"]) for m in long) <= MAX_CHAT
    assert sum(len(m["content"]) for m in long) > MAX_CHAT - 8
    assert clean(["Hi"]) is None and clean([]) is None
    assert clean(["x" * 1600, "y" * 1600]) is None


def test_a_story_may_hold_a_wolf_but_no_abuse_and_must_end() -> None:
    story = "The wolf was naked with cold, and it died. " * 6
    assert clean(story) == story.strip()
    assert clean(story + "He said: damn.") and not clean(story + "He said: shit.")
    assert clean(story + "And then the") is None
    assert clean("Too short.") is None and clean(story * (MAX_TEXT // 200)) is None


def test_exact_repeats_are_dropped_and_the_order_stays() -> None:
    chat = [{"role": "user", "content": "b"}]
    assert list(without_repeats(["b", "a", chat, "b", chat, "c"])) == ["b", "a", chat, "c"]
