"""A chat that is exported as text to conversations; the words of one person are learned.

>>> import io
>>> lines = "03/05/2021, 14:02 - Ann: Hi\\n03/05/2021, 14:03 - Ben: Hello\\nyou\\n"
>>> form = chat_of(lines, "chat.txt")
>>> [(said.name, said.text) for said in messages(io.StringIO(lines), [], form, "dmy")]
[('Ann', 'Hi'), ('Ben', 'Hello\\nyou')]
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise, takewhile
from typing import TextIO

from gptcore.checks import closest
from gptcore.system.wording import counted
from training.formats.chats.forms import Form, chat_of
from training.formats.found import Asked, Document, Found, Item, Kind, People, Skip, Unreadable
from training.formats.lines import head_of, numbered_lines, open_text
from training.formats.places import File

PAUSE = timedelta(hours=6)  # a longer silence begins another conversation
OPENS = "it begins a conversation, so there is nothing that it answers"
BEFORE_NOON = {"am", "上午", "午前", "오전", "ص", "πμ"}
AFTER_NOON = {"pm", "下午", "午後", "오후", "م", "μμ"}
SHOWN = 8  # people of a chat; the others are counted
ORDERS = ("dmy", "mdy", "ymd")  # of day, month and year, as countries write dates
MARKS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")  # directions of writing
OWN_MARK = "\u200e"  # which an iPhone sets before its own words
FILE_NAME = re.compile(r"\.\w{2,5} ")
# A poll of Android's, in any language: POLL: and, below what is asked, OPTION: Today (2 votes).
POLL = re.compile(r"[^\W\d_]+ ?[:：]")
OPTION = re.compile(rf"{POLL.pattern} ?\S.* ?\(\d+ ?[^\W\d_]+\)")
# What follows a message that was edited: an iPhone's in any words, and Android's in any language.
EDITED = re.compile(r"(\u200e<[^<>]*>|(?<!\S)<(?=[^<>]* )[^<>\d=/\"]{12,60}>)$")
NO_WORDS_SAID = "a picture, a sound, a deleted message or a notice of the program's own"


@dataclass
class Said:
    """One message of a chat."""

    name: str
    text: str
    at: datetime | None
    where: str


def read_chat(file: File, asked: Asked) -> Found:
    """Yield the conversations of a chat; the words of `asked.me` are the assistant's.

    Raises Unreadable if it is not said whose words are learned.
    """
    form = chat_of(head_of(file), file.inner_name)
    assert form, "kind_of has found one in the same head"
    skipped: list[Skip] = []
    with open_text(file) as stream:
        order = order_of([date for date, _ in groupby(dates(stream, form))])
    with open_text(file) as stream:
        names = Counter(said.name for said in messages(stream, [], form, order))
    yield from people_of(names, asked.me, form.name, "if it is no chat: rename it to .log")
    with open_text(file) as stream:
        yield from items_of_chat(messages(stream, skipped, form, order), asked.me, skipped)


def people_of(names: Counter[str], me: tuple[str, ...], what: str, otherwise: str = "") -> Found:
    """Yield who writes how much. Raises Unreadable if none of them is in `me`.

    `otherwise`: what else to do with such a file.
    """
    if not names:
        raise Unreadable(f"it is a {what} in which nobody writes: export one with messages")
    yield People(names)
    people = writers(names)
    if not me:
        raise Unreadable(f"it is a {what} of {question(names)}{'; ' * bool(otherwise)}{otherwise}")
    if not {*me} & {*names}:
        asked = " or ".join(f'--me "{name}"' for name in me)
        meant = [found for name in me if (found := meant_by(name, names))]
        hint = f'did you mean --me "{meant[0]}"? ' if meant else ""
        raise Unreadable(
            f"{asked} is not in this {what}: {hint}it has {people}; --me takes a second name of "
            f"yours, too"
        )
    yield Kind(f"{what} of {people}")


def writers(names: Counter[str]) -> str:
    said = [f"{name} ({counted(n, 'message')})" for name, n in names.most_common(SHOWN)]
    return ", ".join(said) + f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)


def question(names: Counter[str]) -> str:
    """Return who writes how much, and that one of them is to be named."""
    [(first, _)] = names.most_common(1)
    return f'{writers(names)}: name the one whose words are learned, such as --me "{first}"'


def meant_by(name: str, names: Counter[str]) -> str | None:
    """Return the name that somebody may have meant: one with this part, or a near one."""
    parts = (one for one in names if name.casefold() in one.casefold())
    return next(parts, None) or closest(name, names)


def items_of_chat(said: Iterator[Said], me: tuple[str, ...], skipped: list[Skip]) -> Found:
    """Yield the conversations that `said` makes, and what it appends to `skipped` meanwhile."""
    for part in conversations(said):
        opening = [*takewhile(lambda one: one.name in me, part)]
        if document := document_of_chat(part[len(opening) :], me):
            yield Item(document)
            yield from (Skip(one.where, OPENS) for one in opening)
        else:
            names = " or ".join(me)
            yield Skip(part[0].where, f"{names} answers nobody in this part of the chat")
        yield from skipped
        skipped.clear()
    yield from skipped


def messages(stream: TextIO, skipped: list[Skip], form: Form, order: str) -> Iterator[Said]:
    """Yield the messages with words; append the others to `skipped`."""
    said: Said | None = None
    today = ""
    lines: list[str] = []  # of the message
    is_open = False  # whether it stands in quotes that are not closed yet
    for number, line in numbered_lines(stream):
        line = line.rstrip("\n")
        match = form.begin.match(line)
        is_within = is_open and lines[-1] != ""  # an empty line stands above a day
        day = None if match or is_within else form.day_in(line)
        if day:
            today = day["date"] or ""
        elif not match:
            lines.append(line)
            is_open = is_open and not line.endswith('"')
        else:
            if said:
                yield from with_words(said, lines, form, skipped)
            today = match["date"] if form.has_dates else today
            name = MARKS.sub("", match["name"] or "").strip().removeprefix("~").strip()
            at = moment(today, match["time"], order)
            said = Said(name, "", at, f"line {number}") if name else None
            words = line[match.end() :]
            lines = [words]
            is_open = form.is_quoted and words.startswith('"') and not words[1:].endswith('"')
            if not name:
                skipped.append(Skip(f"line {number}", NO_WORDS_SAID))
    if said:
        yield from with_words(said, lines, form, skipped)


def dates(stream: TextIO, form: Form) -> Iterator[str]:
    """Yield the dates of messages, or those of lines with the day alone."""
    for _, line in numbered_lines(stream):
        line = line.rstrip("\n")
        match = form.begin.match(line) if form.has_dates else form.day_in(line)
        if match and match["date"]:
            yield match["date"]


def with_words(said: Said, lines: list[str], form: Form, skipped: list[Skip]) -> Iterator[Said]:
    text = "" if is_poll(lines) else "\n".join(lines[1:] if is_file(lines[0]) else lines)
    above, _, below = text.strip().partition("\n")
    text = below if form.above.fullmatch(above) else text.strip()
    text = MARKS.sub("", EDITED.sub("", text)).strip()
    if form.is_quoted and "\n" in text and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    said.text = text
    if text and not form.wordless.fullmatch(text):
        yield said
    else:
        skipped.append(Skip(said.where, NO_WORDS_SAID))


def is_poll(lines: list[str]) -> bool:
    """Return whether a message is a poll; an iPhone sets a mark before its title and options."""
    if POLL.fullmatch(lines[0]):
        return sum(bool(OPTION.fullmatch(line)) for line in lines) > 1
    return sum(line.startswith(OWN_MARK) for line in lines) > 1


def is_file(line: str) -> bool:
    """Return whether an iPhone wrote a line in place of a file: its name, a mark, and what it is.

    >>> is_file("plan.pdf • \u200e3 pages \u200edocument omitted"), is_file("see plan.pdf")
    (True, False)
    """
    name, mark, kind = line.rpartition(OWN_MARK)
    is_own = mark and kind.strip() and not kind.startswith("<")
    return bool(is_own and FILE_NAME.search(name))


def order_of(dates: list[str]) -> str:
    """Return the order in which most of them are dates, and follow most closely on one another.

    >>> order_of(["5/3/21", "5/4/21"]), order_of(["03.05.21", "04.05.21"]), order_of(["2021-05-03"])
    ('mdy', 'dmy', 'ymd')
    """

    def misfit(order: str) -> tuple[int, int]:
        days = [day for date in dates if (day := day_of(date, order))]
        return len(dates) - len(days), sum(abs((b - a).days) for a, b in pairwise(days))

    return min(ORDERS, key=misfit)


def day_of(written: str, order: str) -> date | None:
    numbers = dict(zip(order, map(int, re.findall(r"\d+", written))))
    try:
        return date(numbers["y"] + 2000 * (numbers["y"] < 100), numbers["m"], numbers["d"])
    except ValueError:
        return None


def moment(written: str, time: str, order: str) -> datetime | None:
    """Return when a message was written, or None if nobody can tell."""
    day = day_of(written, order) if written else None
    hour, minute, second = [*map(int, re.findall(r"\d+", time)), 0][:3]
    noon = re.sub(r"[\W\d]", "", time).lower()
    if noon in BEFORE_NOON | AFTER_NOON:
        hour = hour % 12 + 12 * (noon in AFTER_NOON)
    try:
        return datetime(day.year, day.month, day.day, hour, minute, second) if day else None
    except ValueError:
        return None


def oldest_first(said: list[Said]) -> list[Said]:
    """Return the messages of an export that may begin with the newest, as Facebook's does."""
    at = [one.at for one in said if one.at]
    return said[::-1] if at and at[0] > at[-1] else said


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


def document_of_chat(part: list[Said], me: tuple[str, ...]) -> Document | None:
    """Return messages in which others are the user, or None if `me` answers nobody."""
    turns = [
        {"role": role, "content": "\n".join(said.text for said in spoken)}
        for role, spoken in groupby(part, lambda one: "assistant" if one.name in me else "user")
    ]
    return turns if any(turn["role"] == "assistant" for turn in turns) else None
