"""Parsers that yield stories, and conversations about stories, from publishers' files.

Plain stories are yielded as texts, chats as lists of what is said in turn, the user first.

>>> request("Once upon a time there was a girl named Lily. She had a red ball.", 0)
'Tell me a story about a girl named Lily and a ball.'
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from training.data.corpus import document_number
from training.datasets.parsers import Chats, members, read_csv, sentence
from training.formats.texts import SEPARATOR

LONGEST_PASSAGE = 800  # maximum characters of a passage with questions
LONGEST_PIECE = 3000  # maximum characters of a piece of a tale
INTRODUCTION = 150  # first characters, in which a story's hero must appear
CHAT_LENGTHS = range(350, 1001)  # characters of the stories that are told in conversations

OPENINGS = (
    "Tell me a story about",
    "Can you tell me a story about",
    "Please tell me a story about",
)
WHO = re.compile(
    r"\b(boy|girl|man|woman|dog|cat|bunny|rabbit|bird|bear|fish|frog|duck|mouse|pig|horse|cow|lion|"
    r"fox|turtle|dragon|robot|king|queen|princess|fairy|squirrel|monkey|elephant|bee|ant)"
    r"(?: named ([A-Z][a-z]+)\b)?"
)
WHAT = re.compile(
    r"\b(ball|toy|cake|tree|boat|car|box|book|hat|flower|park|garden|beach|forest|castle|kite|"
    r"train|bike|apple|doll|drum|swing|star|moon|rock|key|picture|song|game)\b"
)
LICENCE = re.compile(r"^\* License: \[(.*?)\]", re.MULTILINE)
FREE = ("CC-BY", "CC BY", "Public Domain")  # the other licences forbid commercial use
GLUED = re.compile(r"[a-z][.!?;,]+[\"']?[A-Z]")  # a lost line end, which glues words together


def tinystories(path: Path) -> Iterator[str]:
    """The stories that tinystories_chats does not use, as texts."""
    return (story for story in tiny(path) if not told_in_chat(story))


def tinystories_chats(path: Path) -> Chats:
    """Short stories, each told on the request for a story about its hero and a thing."""
    for story in filter(told_in_chat, tiny(path)):
        if asked := request(story, document_number(story)):
            yield [asked, story]


def tiny(path: Path) -> Iterator[str]:
    """Yield the stories of TinyStories, which separators divide."""
    story: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in chain(file, [SEPARATOR]):
            if line.strip() != SEPARATOR:
                story.append(line)
            elif text := "".join(story).strip():
                yield text
                story = []


def told_in_chat(story: str) -> bool:
    return len(story) in CHAT_LENGTHS and document_number(story) % 4 > 0


def request(story: str, number: int) -> str | None:
    """Return a user's request for this story, or None if no hero is found in it."""
    who = WHO.search(story[:INTRODUCTION])
    if not who:
        return None
    subject = f"{article(who[1])} {who[1]}" + (f" named {who[2]}" if who[2] else "")
    things = Counter(WHAT.findall(story)).most_common(1)
    if things:
        subject += f" and {article(things[0][0])} {things[0][0]}"
    opening = OPENINGS[number % len(OPENINGS)]
    return f"{opening} {subject}{'?' if opening.startswith('Can') else '.'}"


def article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def picture_books(path: Path) -> Iterator[str]:
    """African Storybook and Pratham Books: `##` begins each page; the last has the licence."""
    for _, text in members(path, "en/*.md"):
        licence = LICENCE.search(text)
        if licence and licence[1].strip() in FREE:
            lines = (line.strip() for line in text.splitlines())
            yield "\n".join(line for line in lines if line and line[0] not in "#*")


def fairy_tales(path: Path) -> Iterator[str]:
    """FairytaleQA's tales as texts, in pieces of whole sections."""
    for sections in tales(path).values():
        piece = ""
        for section in sections.values():
            if piece and len(piece) + len(section) >= LONGEST_PIECE:
                yield piece
                piece = ""
            piece += ("\n" if piece else "") + section
        yield piece


def fairy_tale_questions(path: Path) -> Chats:
    """FairytaleQA's short sections with the questions that they answer literally."""
    stories = tales(path)
    for name, text in members(path, "data-by-train-split/questions/*/*-questions.csv"):
        sections = stories.get(Path(name).name.removesuffix("-questions.csv"), {})
        chats: dict[str, list[str]] = {}
        for row in read_csv(text):
            section = sections.get(row["cor_section"].strip(), "")
            if row["ex-or-im1"] != "explicit" or not 0 < len(section) <= LONGEST_PASSAGE:
                continue
            turns = chats.setdefault(section, [])
            question = row["question"] if turns else f"{section}\n{row['question']}"
            turns += [question.strip(), sentence(row["answer1"])]
        yield from chats.values()


def tales(path: Path) -> dict[str, dict[str, str]]:
    """Return the tales by name, each as a dict of sections by number."""
    found = {}
    for name, text in members(path, "data-by-train-split/section-stories/*/*-story.csv"):
        sections = {row["section"].strip(): row["text"].strip() for row in read_csv(text)}
        if sections and not any(map(GLUED.search, sections.values())):
            found[Path(name).name.removesuffix("-story.csv")] = sections
    return found
