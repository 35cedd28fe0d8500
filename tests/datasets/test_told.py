"""What a user tells is said back and asked back in the words of a real sentence."""

import pytest

from training.datasets.told import ask_facts, fact, reflected

CHAT = [
    {"role": "user", "content": "Hi! I'm a nurse. I have three dogs and I like it."},
    {"role": "assistant", "content": "My brother works in a bank. I like to read. Tom was sad."},
]


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("I left my keys at home.", "you left your keys at home"),
        (
            "My sister gave me a book, and I'm glad.",
            "your sister gave you a book, and you are glad",
        ),
        ("I was tired.", "you were tired"),
        ("Tom was tired.", "Tom was tired"),
        ("I love my T-shirt.", "you love your T-shirt"),
        ("Tom saw my merry-go-round, and I ran.", "Tom saw your merry-go-round, and you ran"),
        ("I saw an I-beam - my first.", "you saw an I-beam - your first"),
    ],
)
def test_first_persons_become_second_ones(said: str, known: str) -> None:
    assert reflected(said) == known


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("I have three dogs.", "How many dogs do I have?", "You have three dogs."),
        ("I have three dogs.", "Do I have three dogs?", "Yes, you have three dogs."),
        ("I have two T-shirts.", "How many T-shirts do I have?", "You have two T-shirts."),
        ("I like to read old books.", "What do I like to do?", "You like to read old books."),
        ("I'm a nurse in training.", "What am I?", "You are a nurse in training."),
        ("I live in a small town.", "Where do I live?", "You live in a small town."),
        ("I want to see the sea.", "What do I want?", "You want to see the sea."),
        ("My brother works in a bank.", "Who works in a bank?", "Your brother works in a bank."),
        ("My favorite band is old.", "What is my favorite band?", "Your favorite band is old."),
        ("Tom found a ball in the park.", "Where did Tom find a ball?", "In the park."),
        ("Tom found a ball in the park.", "Who found a ball in the park?",
         "Tom found a ball in the park."),
    ],
)  # fmt: skip
def test_questions_have_the_sentence_as_their_answer(sentence, question, answer) -> None:
    assert (question, answer) in fact(sentence).asked


@pytest.mark.parametrize(
    "sentence",
    [
        "I like it.",  # nobody knows what
        "I have been to Rome.",  # not a thing to have
        "You have a dog.",
        "Then came a dog.",
        "I have a dog, and I walk a lot.",
        "What do I have?",
        "Yes.",
        "I want to hear a story about a cat.",
        "",
    ],
)
def test_what_does_not_stand_alone_is_left_out(sentence: str) -> None:
    assert fact(sentence) is None


def test_a_document_gives_the_same_conversations_again_and_each_answer_was_told() -> None:
    made = list(ask_facts(CHAT))
    assert made == list(ask_facts(CHAT)) and made
    for messages in made:
        assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2)
    text = " ".join(m["content"] for messages in made for m in messages).lower()
    for known in ("you are a nurse", "your brother works in a bank", "you like to read"):
        assert known in text
    assert "like it" not in text
