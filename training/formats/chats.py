"""A chat that is exported as text to conversations; the words of one person are learned.

>>> import io
>>> lines = "03/05/2021, 14:02 - Ann: Hi\\n03/05/2021, 14:03 - Ben: Hello\\nyou\\n"
>>> form = CHATS["WhatsApp chat"]
>>> [(said.name, said.text) for said in messages(io.StringIO(lines), [], form, "dmy")]
[('Ann', 'Hi'), ('Ben', 'Hello\\nyou')]
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise
from typing import TextIO

from gptcore.checks import closest
from training.formats.found import Asked, Document, Found, Item, Kind, People, Skip, Unreadable
from training.formats.kinds import CHATS, DAY, HEAD, chat_of
from training.formats.lines import numbered_lines, open_text
from training.formats.places import File

PAUSE = timedelta(hours=6)  # a longer silence begins another conversation
BEFORE_NOON = {"am", "上午", "午前", "오전", "ص", "πμ"}
AFTER_NOON = {"pm", "下午", "午後", "오후", "م", "μμ"}
ORDERS = ("dmy", "mdy", "ymd")  # of day, month and year, as countries write dates
MARKS = re.compile("[\u200e\u200f\u202a-\u202e\ufeff]")  # directions of writing
# What stands for a picture or for a deleted message; Android's is in <>, in any language.
NO_WORDS = re.compile(
    r"<[^<>]*>|(image|video|audio|sticker|GIF|document|Contact card) omitted|"
    r"(This message was deleted|You deleted this message)\.?|null|"
    r"\[(Sticker|Photo|Video|File|Album|スタンプ|写真|動画|貼圖|照片|影片)\]|"  # LINE's
    r"사진|동영상|이모티콘",  # KakaoTalk's
    re.IGNORECASE,
)
# A line of WhatsApp's own above the words, such as the name of the file that they are about.
OWN_LINE = re.compile(r"\A\u200e.*\n?")
EDITED = re.compile(
    r"\s*(\u200e<[^<>]*>|<(This message was edited|Diese Nachricht wurde bearbeitet)\.?>)$"
)
QUOTED = re.compile(r'^"(.*\n.*)"$', re.DOTALL)  # how LINE writes a message of several lines
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
    with open_text(file) as stream:
        what = chat_of(stream.read(HEAD))
    skipped: list[Skip] = []
    form = CHATS[what]
    with open_text(file) as stream:
        order = order_of([date for date, _ in groupby(dates(stream, form))])
    with open_text(file) as stream:
        names = Counter(said.name for said in messages(stream, [], form, order))
    yield from people_of(names, asked.me, what)
    with open_text(file) as stream:
        yield from items_of_chat(messages(stream, skipped, form, order), asked.me, skipped)


def people_of(names: Counter[str], me: tuple[str, ...], what: str) -> Found:
    """Yield who writes how much. Raises Unreadable if none of them is in `me`."""
    if not names:
        raise Unreadable(f"it is a {what} in which nobody writes: export one with messages")
    yield People(tuple(name for name, _ in names.most_common()))
    people = ", ".join(f"{name} ({n:,} messages)" for name, n in names.most_common(8))
    if not me:
        choices = " or ".join(f'--me "{name}"' for name, _ in names.most_common(2))
        raise Unreadable(f"it is a {what} of {people}: say whose words are learned: {choices}")
    if not {*me} & {*names}:
        asked = " or ".join(f'--me "{name}"' for name in me)
        meant = [found for name in me if (found := meant_by(name, names))]
        hint = f'did you mean --me "{meant[0]}"? ' if meant else ""
        raise Unreadable(
            f"{asked} is not in this {what}: {hint}it has {people}; --me takes a second name of "
            f"yours, too"
        )
    yield Kind(f"{what} of {people}")


def meant_by(name: str, names: Counter[str]) -> str | None:
    """Return the name that somebody may have meant: one with this part, or a near one."""
    parts = (one for one in names if name.casefold() in one.casefold())
    return next(parts, None) or closest(name, names)


def items_of_chat(said: Iterator[Said], me: tuple[str, ...], skipped: list[Skip]) -> Found:
    """Yield the conversations that `said` makes, and what it appends to `skipped` meanwhile."""
    for part in conversations(said):
        if document := document_of_chat(part, me):
            yield Item(document)
        else:
            names = " or ".join(me)
            yield Skip(part[0].where, f"{names} answers nobody in this part of the chat")
        yield from skipped
        skipped.clear()
    yield from skipped


def messages(
    stream: TextIO, skipped: list[Skip], form: re.Pattern[str], order: str
) -> Iterator[Said]:
    """Yield the messages with words; append the others to `skipped`."""
    said: Said | None = None
    today = ""
    for number, line in numbered_lines(stream):
        line = line.rstrip("\n")
        if day := day_in(line, form):
            today = day
        match = form.match(line)
        if not match:
            if said and not day:
                said.text += "\n" + line
            continue
        if said:
            yield from with_words(said, skipped)
        name = MARKS.sub("", match["name"] or "").strip().removeprefix("~").strip()
        at = moment(today, match["time"], order)
        said = Said(name, line[match.end() :], at, f"line {number}") if name else None
        if not name:
            skipped.append(Skip(f"line {number}", NO_WORDS_SAID))
    if said:
        yield from with_words(said, skipped)


def day_in(line: str, form: re.Pattern[str]) -> str:
    """Return the date in a line: of its message, or alone where messages have a time only."""
    match = form.match(line) if "date" in form.groupindex else DAY.fullmatch(line)
    return match["date"] if match else ""


def dates(stream: TextIO, form: re.Pattern[str]) -> Iterator[str]:
    return (day for _, line in numbered_lines(stream) if (day := day_in(line.rstrip(), form)))


def with_words(said: Said, skipped: list[Skip]) -> Iterator[Said]:
    text = MARKS.sub("", EDITED.sub("", OWN_LINE.sub("", said.text))).strip()
    said.text = QUOTED.sub(r"\1", text)
    if said.text and not NO_WORDS.fullmatch(said.text):
        yield said
    else:
        skipped.append(Skip(said.where, NO_WORDS_SAID))


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
    turns: list[dict[str, str]] = []
    for said in part:
        role = "assistant" if said.name in me else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + said.text
        else:
            turns.append({"role": role, "content": said.text})
    turns = turns[turns[0]["role"] == "assistant" :]
    return turns if any(turn["role"] == "assistant" for turn in turns) else None
