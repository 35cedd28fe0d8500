"""Chats that were exported as text: how their messages begin, and what no person wrote.

>>> chat_of("03/05/2021, 14:02 - Ann: Hi\\n03/05/2021, 14:03 - Ben: Hello\\n", "chat.txt").name
'WhatsApp chat'
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

LONGEST_DAY = 80  # characters; in a long line, the patterns would try each place
LOOKED_AT = 50  # a third of these lines begin messages; if messages are long, more are looked at
# How a message begins: [2021-05-03, 14:02:11] Ann: or 3. 5. 2021, 2:02 p.m. - Ann: or, below a
# line with the day, a time and a name.
# In Arabic, a mark of the writing's direction is before each slash.
DATE = r"(?P<date>\d{1,4}\u200f?(?:[./-] ?|년 )\d{1,2}\u200f?(?:[./-] ?|월 )\d{1,4})"
NOON = r"[^\W\d_]\.?[ \xa0\u202f]?[^\W\d_]{0,2}\.?"  # AM, p.m., μ.μ. or م
CLOCK = r"(?:[^\W\d_]{1,4}\.? ?)?\d{1,2}[:.]\d{2}(?:[:.]\d{2})?"  # 14:02, klo 14.02, 下午2:02:11
TIME = rf"(?P<time>{CLOCK}(?:[ \xa0\u202f]?{NOON})?)"
WEEKDAY = r"[^\s\d.,:;!?()\"]{1,14}"
# A notice, too, may hold a colon: in what it quotes, or in another sentence than its first.
# No two of these begin alike: a notice with many dots would else be matched in 2^n ways.
NAME = (
    rf"(?P<name>(?!{CLOCK})(?:"
    r"[^\"“„«.]|(?<![^\W\d_]{6})\.|(?<=[^\W\d_]{6})\.(?! )|"
    r"\"[^\"]*\"|[“„][^“„”]*[“”]|«[^«»]*»)+?)"
)


@dataclass(frozen=True)
class Form:
    """How the messages of one program begin, with a date or below a line with the day."""

    name: str
    begin: re.Pattern[str]
    wordless: re.Pattern[str]  # what stands for a picture or for a deleted message
    # A line of the program's own above the words, such as one in place of a picture.
    above: re.Pattern[str] = re.compile("(?!)")
    day: re.Pattern[str] = re.compile("(?!)")  # a line with the day alone: by default none
    is_quoted: bool = False  # whether a message of several lines stands in quotes

    @property
    def has_dates(self) -> bool:
        return "date" in self.begin.groupindex

    def day_in(self, line: str) -> re.Match[str] | None:
        """Return the match of a line with the day alone."""
        return self.day.fullmatch(line) if len(line) <= LONGEST_DAY else None


NOTICES = (  # what Android's WhatsApp has in place of a message, without a mark before it
    "This message was deleted( by admin .+)?",
    "You deleted this message",
    "Diese Nachricht wurde gelöscht",
    "Du hast diese Nachricht gelöscht",
    "Se eliminó este mensaje",
    "Eliminaste este mensaje",
    "Ce message a été supprimé",
    "Vous avez supprimé ce message",
    "Questo messaggio è stato eliminato",
    "Hai eliminato questo messaggio",
    "Dit bericht is verwijderd",
    "Je hebt dit bericht verwijderd",
    "Mensagem apagada",
    "Você apagou esta mensagem",
    "Missed (group )?(voice|video) call",
    "Verpasster (Sprach|Video)anruf",
    "live location shared",
    "Waiting for this message. This may take a while",
)
# A file by Android's name for it, and in any language that it is attached.
ATTACHED = r"[A-Z]{3}-\d{8}-WA\d{4}\.\w{2,5} \([^()]+\)"
PLACE = r"\w+ ?: https://maps\.google\.com/\?q=[-\d.,]+"  # with its word in any language
KAKAOTALK = re.compile(r"사진|동영상|이모티콘")
FORMS = (
    Form(
        "WhatsApp chat",
        re.compile(
            rf"[\u200e\u200f]?\[?[\u200e\u200f]?{DATE}\.?[,،]? {TIME}(?:\]| -) "
            rf"(?:{NAME}: )?"
        ),
        re.compile(  # Android's is in <>, in any language
            r"<[^<>]*>|(image|video|audio|sticker|GIF|document|Contact card) omitted|"
            rf"({'|'.join(NOTICES)})\.?|{PLACE}|(?-i:null)",
            re.IGNORECASE,
        ),
        re.compile(rf"\u200e.*|<[^<>]*>|{ATTACHED}"),
    ),
    Form(  # what its program for computers copies
        "Telegram chat",
        re.compile(rf"(?P<name>[^\s\[][^\[\]]*), \[{DATE}\.?,? {TIME}\]$"),
        re.compile(r"\[ [^\[\]]+ \]|\[Forwarded from (?s:.)*"),
        re.compile(r"\[In reply to .*"),
    ),
    Form(
        "LINE chat",
        re.compile(rf"(?=\D*\d+:){TIME}\t(?:(?P<name>[^\t]+)\t)?"),
        re.compile(r"\[(Sticker|Photo|Video|File|Album|スタンプ|写真|動画|貼圖|照片|影片)\]"),
        day=re.compile(  # 2021/05/03(Mon) or Mon, 05/03/2021
            rf"(?=.*\d{{4}})(?:{WEEKDAY},? )?{DATE}(?:\({WEEKDAY}\)| {WEEKDAY})?"
        ),
        is_quoted=True,
    ),
    Form(
        "KakaoTalk chat",
        re.compile(rf"\[(?P<name>[^\]]+)\] \[{TIME}\] "),
        KAKAOTALK,
        day=re.compile(rf"-{{5,}} .*?(?:{DATE}.*)? -{{5,}}"),
    ),
    Form(  # of phones
        "KakaoTalk chat",
        re.compile(rf"{DATE}(?:일|\.) {TIME}(?:$|, (?:(?P<name>.+?) : )?)"),
        KAKAOTALK,
        day=re.compile(rf"{DATE}일 {WEEKDAY}"),
    ),
)


def chat_of(text: str, name: str) -> Form | None:
    """Return the form of chat that a file has, by its first bytes as text and its name, or None.

    It takes people who talk, and a third of the lines must begin messages. If the first is long,
    a date and a name at the beginning and again in the later half are enough, but not in Markdown,
    which quotes such lines.
    """
    if name.endswith((".csv", ".tsv")) or ".log." in f"{name}.":
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    for form in FORMS:
        days = [bool(form.day_in(line)) for line in lines]
        begin = [form.begin.match(line) for line, is_day in zip(lines, days) if not is_day]
        named = {i: found["name"] for i, found in enumerate(begin) if found and found["name"]}
        if not are_people([*named.values()]) or not (form.has_dates or any(days)):
            continue
        first = [*map(bool, islice(begin, LOOKED_AT))]
        is_throughout = any(first[:2]) and 2 * max(named) >= len(begin)
        may_be_long = form.has_dates and not name.endswith((".md", ".markdown"))
        if 3 * sum(first) >= len(first) or (may_be_long and is_throughout):
            return form
    return None


def are_people(names: Sequence[str]) -> bool:
    """Whether those who write the messages talk: two or more, and most write more than once.

    Logs, diaries and dates of meetings, too, have a time and a word before a colon. If there
    are few messages, each may have another writer.

    >>> are_people(["Ann", "Ben"]), are_people(["INFO", "INFO"]), are_people("ABCDEFGH")
    (True, False, False)
    """
    n = len({*names})
    return n > 1 and 2 * n <= len(names) + 3
