"""Questions and answers in texts: each pair is a conversation; other texts stay what they are."""

from pathlib import Path

import pytest
from test_books import docx, run
from texts import documents, told, write

from gptcore.text.chat_template import messages_of

ENGLISH = """Spoke & Chain: frequently asked questions

Q: Do you deliver?
A: Yes, on Fridays.

Q: Can I pay in cash?
A: Of course.

We take cards, too.

Repairs

Q: How long does it take?
A: We mend:

wheels

brakes
Q: Do you sell gift cards?
Q2) Do you rent bikes?
A2) Yes: by the day.
"""
GERMAN = """# Häufige Fragen

**Frage 1: Wann ist offen?**

**Antwort:** Von neun bis sechs.

### Frage 2: Wo seid ihr?

Antwort: In Köln.

## Preise

### Frage 3: Was kostet es?

Antwort: Zehn Euro.
"""
FRENCH = """Q\u202f: Ouvert ?
R\u202f: Oui.

Q\u202f: Demain ?
R\u202f: Non.

Q\u202f: Où ?
R\u202f: Ici.
"""
CHINESE = "问：几点开门？\n答：九点。\n\n问：在哪里？\n答：在科隆。\n\n问：多少钱？\n答：十欧元。\n"


def pairs(*texts: str) -> list[list[dict[str, str]]]:
    return [[*messages_of(texts[i : i + 2])] for i in range(0, len(texts), 2)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("faq.txt", ENGLISH, pairs(
            "Do you deliver?", "Yes, on Fridays.",
            "Can I pay in cash?", "Of course.\n\nWe take cards, too.",
            "How long does it take?", "We mend:\n\nwheels\n\nbrakes",
            "Do you rent bikes?", "Yes: by the day.",
        )),
        ("faq.md", GERMAN, pairs(
            "Wann ist offen?", "Von neun bis sechs.", "Wo seid ihr?", "In Köln.",
            "Was kostet es?", "Zehn Euro.",
        )),
        ("faq.txt", FRENCH, pairs("Ouvert ?", "Oui.", "Demain ?", "Non.", "Où ?", "Ici.")),
        ("faq.txt", CHINESE, pairs(
            "几点开门？", "九点。", "在哪里？", "在科隆。", "多少钱？", "十欧元。"
        )),
    ],
    ids=["English", "German", "French", "Chinese"],
)  # fmt: skip
def test_each_pair_is_a_conversation(tmp_path: Path, name: str, text: str, expected: list) -> None:
    assert documents(write(tmp_path / name, text)) == expected


def test_what_is_no_pair_is_told(tmp_path: Path) -> None:
    said = told(write(tmp_path / "faq.txt", ENGLISH))
    assert "faq.txt: text, its questions and answers, 4 conversations" in said
    assert "skipped 1: it has no answer (first: question 4)" in said
    assert "skipped 1: a title or another text stands below its answer (first: question 2)" in said


MARKED = """# Shop

We mend bikes.

**Q:** Open?
**A:** **Yes**, we are.

**Q**: Where?
**A**: Here:

Main Street

**Q: How do I reach you?**
A: By mail.

help@example.org

Q: Two?
A: One.
A: Or more.

Q: Last?
A: These:

* wheels

## Terms

Pay now.
"""


HEADINGS = """# Shop

We mend bikes.

## Do you deliver?

Yes:

* on Fridays

**Can I pay in cash?**
Of course.

## Wheels

All about wheels.

### How *long* does it take? ###
An hour.
"""


@pytest.mark.parametrize(
    ("text", "expected", "titled"),
    [
        (MARKED, pairs(
            "Open?", "**Yes**, we are.",
            "Where?", "Here:\n\nMain Street",
            "How do I reach you?", "By mail.\n\nhelp@example.org",
            "Two?", "One.\n\nOr more.",
            "Last?", "These:\n\n* wheels",
        ), 5),
        (HEADINGS, pairs(
            "Do you deliver?", "Yes:\n\n* on Fridays",
            "Can I pay in cash?", "Of course.",
            "How *long* does it take?", "An hour.",
        ), 2),
    ],
    ids=["marks", "headings"],
)  # fmt: skip
def test_answers_of_markdown_are_whole_and_what_is_beside_them_is_told(
    tmp_path: Path, text: str, expected: list, titled: int
) -> None:
    path = write(tmp_path / "faq.md", text)
    assert documents(path) == expected
    said = told(path)
    assert "skipped 1: it stands above the first question (first: the beginning)" in said
    below = "skipped 1: a title or another text stands below its answer"
    assert f"{below} (first: question {titled})" in said


def test_few_headings_that_are_questions_are_a_text(tmp_path: Path) -> None:
    few = HEADINGS.replace("deliver?", "deliver").replace("cash?", "cash")
    assert documents(write(tmp_path / "text.md", few)) == [few]


def test_so_are_those_of_a_word_document_and_of_a_page(tmp_path: Path) -> None:
    lines = [line for line in GERMAN.splitlines() if line and not line.startswith("##  ")]
    body = "".join(f"<w:p>{run(line.strip('#* ').replace('**', ''))}</w:p>" for line in lines)
    page = "".join(f"<p>{line}</p>" for line in CHINESE.splitlines() if line)
    answers = [chat[1]["content"] for chat in documents(write(tmp_path / "faq.docx", docx(body)))]
    assert answers == ["Von neun bis sechs.", "In Köln.", "Zehn Euro."]
    html = f"<!DOCTYPE html><html><body><article>{page}</article></body></html>"
    assert len(documents(write(tmp_path / "faq.html", html))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "Q: One?\nA: Yes.\nQ: Two?\nA: Yes.\n",  # too few to tell
        "A: Yes.\nB: No.\nA: Yes.\nB: No.\nA: Yes.\nB: No.\n",  # a play
        "A. Smith met Q. Jones.\n" * 9,
        f"{'A long tale of the sea. ' * 99}\n\nQ: One?\nA: a\nQ: Two?\nA: b\nQ: Three?\nA: c\n",
        f"Q: One?\nA: a\nQ: Two?\nA: b\nQ: Three?\nA: c\n\n{'A long tale of the sea. ' * 99}",
    ],
)
def test_another_text_stays_one(tmp_path: Path, text: str) -> None:
    found = documents(write(tmp_path / "a.txt", text))
    assert "".join(str(part) for part in found).split() == text.split()


def test_a_long_text_that_begins_with_some_stays_one(tmp_path: Path) -> None:
    """Its head alone looks like nothing but questions."""
    faq = "".join(f"Q: Is {n} a number?\nA: Yes, it is one.\n\n" for n in range(2_000))
    (tale := "It was a dark and stormy night. " * 9_000)
    path = write(tmp_path / "a.txt", f"{faq}\n{tale}")
    assert "".join(str(text) for text in documents(path)) == f"{faq}\n{tale}"
    assert len(documents(write(tmp_path / "b.txt", faq))) == 2_000
