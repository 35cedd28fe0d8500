"""An exported group chat of WhatsApp to conversations; the words of one person are learned.

>>> import io
>>> lines = "03/05/2021, 14:02 - Ann: Hi\\n03/05/2021, 14:03 - Ben: Hello\\nyou\\n"
>>> [(said.name, said.text) for said in messages(io.StringIO(lines), [])]
[('Ann', 'Hi'), ('Ben', 'Hello\\nyou')]
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TextIO

from gptcore.checks import closest
from training.formats.found import Asked, Document, Found, Item, Kind, Skip, Unreadable
from training.formats.kinds import WHATSAPP
from training.formats.lines import numbered_lines, open_text
from training.formats.places import File

PAUSE = timedelta(hours=6)  # a longer silence begins another conversation
TIMES = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
MARKS = re.compile("[\u200e\u200f\u202a-\u202e\ufeff]")  # directions of writing
# What stands for a picture or for a deleted message, as far as languages share a form.
NO_WORDS = re.compile(
    r"<[^<>]*(omitted|ausgeschlossen|omitido|omis|omesso|weggelaten)[^<>]*>|\u200e.*|"
    r"(image|video|audio|sticker|GIF|document|Contact card) omitted|"
    r"(This message was deleted|You deleted this message)\.?|null",
    re.IGNORECASE,
)
EDITED = re.compile(
    r"\s*(\u200e<[^<>]*>|<(This message was edited|Diese Nachricht wurde bearbeitet)\.?>)$"
)
NO_WORDS_SAID = "a picture, a sound, a deleted message or a notice of WhatsApp's own"


@dataclass
class Said:
    """One message of a chat."""

    name: str
    text: str
    at: datetime | None
    line: int


def read_whatsapp(file: File, asked: Asked) -> Found:
    """Yield the conversations of a chat; the words of `asked.me` are the assistant's.

    Raises Unreadable if it is not said whose words are learned.
    """
    skipped: list[Skip] = []
    with open_text(file) as stream:
        names = Counter(said.name for said in messages(stream, []))
    people = ", ".join(f"{name} ({n:,} messages)" for name, n in names.most_common(8))
    if asked.me is None:
        choices = " or ".join(f'--me "{name}"' for name, _ in names.most_common(2))
        raise Unreadable(
            f"it is a WhatsApp chat of {people}: say whose words are learned: {choices}"
        )
    if asked.me not in names:
        parts = (name for name in names if asked.me.casefold() in name.casefold())
        meant = next(parts, None) or closest(asked.me, names)
        hint = f'did you mean --me "{meant}"? ' if meant else ""
        raise Unreadable(f'--me "{asked.me}" is not in this WhatsApp chat: {hint}it has {people}')
    yield Kind(f"WhatsApp chat of {people}")
    with open_text(file) as stream:
        for part in conversations(messages(stream, skipped)):
            document = document_of_chat(part, asked.me)
            if document:
                yield Item(document)
            else:
                where = f"line {part[0].line}"
                yield Skip(where, f"{asked.me} answers nobody in this part of the chat")
            yield from skipped
            skipped.clear()
    yield from skipped


def messages(stream: TextIO, skipped: list[Skip]) -> Iterator[Said]:
    """Yield the messages with words; append the others to `skipped`."""
    said: Said | None = None
    for number, line in numbered_lines(stream):
        line = line.rstrip("\n")
        match = WHATSAPP.match(line)
        if not match:
            if said:
                said.text += "\n" + line
            continue
        if said:
            yield from with_words(said, skipped)
        name, colon, text = line[match.end() :].partition(": ")
        name = MARKS.sub("", name).strip().removeprefix("~").strip()
        said = Said(name, text, moment(*match.groups()), number) if colon else None
        if not colon:
            skipped.append(Skip(f"line {number}", NO_WORDS_SAID))
    if said:
        yield from with_words(said, skipped)


def with_words(said: Said, skipped: list[Skip]) -> Iterator[Said]:
    if NO_WORDS.fullmatch(said.text.strip()) or not said.text.strip():
        skipped.append(Skip(f"line {said.line}", NO_WORDS_SAID))
    else:
        said.text = MARKS.sub("", EDITED.sub("", said.text)).strip()
        yield said


def moment(date: str, time: str) -> datetime | None:
    """Return when a message was written; days and months need only be in some order."""
    time = re.sub(r"[ \u202f]+", " ", time.replace(".", ":" if "m" not in time.lower() else ""))
    numbers = [int(part) for part in re.split(r"[./-]", date)]
    year = max(numbers[0], numbers[2]) if max(numbers) > 31 else numbers[2]
    day, month = [n for n in numbers if n != year][:2] if numbers.count(year) == 1 else numbers[:2]
    if month > 12:
        day, month = month, day
    for form in TIMES:
        try:
            at = datetime.strptime(time.upper(), form)
            return at.replace(year=year + 2000 * (year < 100), month=month, day=day)
        except ValueError:
            continue
    return None


def conversations(said: Iterator[Said]) -> Iterator[list[Said]]:
    """Yield the messages between two long silences."""
    part: list[Said] = []
    for one in said:
        if part and one.at and part[-1].at and abs(one.at - part[-1].at) > PAUSE:
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def document_of_chat(part: list[Said], me: str) -> Document | None:
    """Return messages in which others are the user, or None if `me` answers nobody."""
    turns: list[dict[str, str]] = []
    for said in part:
        role = "assistant" if said.name == me else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + said.text
        else:
            turns.append({"role": role, "content": said.text})
    turns = turns[turns[0]["role"] == "assistant" :]
    return turns if any(turn["role"] == "assistant" for turn in turns) else None
