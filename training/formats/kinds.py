"""What kind a file is, by its content; its name decides only where the content could be both.

>>> kind_of(b'{"text": "one"}\\n{"text": "two"}\\n', "notes.txt")
'jsonl'
"""

import csv
import io
import json
import re
from collections import Counter

from training.formats.chats.forms import chat_of
from training.formats.encoding import decoded
from training.formats.found import NoText, Unreadable
from training.formats.rows import PAIRS

DELIMITERS = (",", ";", "\t", "|")  # of columns
JSON = re.compile(r'\{\s*"|\[\s*(\{\s*"|\[\s*[\[{"]|"(?:[^"\\]|\\.)*"\s*[,\]])')
XML = re.compile(r"\s*(<\?xml|<[\w:]+\s[^<>]*\bxmlns[:=])")
MIME = re.compile(  # headers of lines, up to one that only mail and web archives have
    r"(From [^\n]*\n)?([A-Z][\w-]*:[^\n]*\n([ \t][^\n]*\n)*)*?"
    r"(MIME-Version|Content-Type|Message-ID|Received):",
    re.I,
)
OTHERS = {  # texts of which most would be no words, and what helps, if something does
    re.compile(pattern): reason
    for pattern, reason in {
        r"={62}\r?\nGuild: ": "it is a Discord channel as text: export it as JSON",
        "AuthorID,Author,Date,": "it is a Discord channel as a table: export it as JSON",
        r"[A-Z][a-z]{2} \d\d, \d{4} +\d{1,2}:\d\d:\d\d [AP]M( \([^\n]*\))?\r?\n\S": "it is a chat "
        "of iMessage: make a table of it with the columns date, user and message",
        r'(#[^\n]*\n|\r?\n)*msgid "': "it is a catalogue of translations: make a table of it "
        "with po2csv",
        r"\s*\[Script Info\]": "it is subtitles of SubStation Alpha: save them as .srt",
        r"\s*(?i:<SAMI)\b": "it is subtitles of SAMI: save them as .srt",
        r"\{\d+\}\{\d*\}": "it is subtitles of MicroDVD: save them as .srt",
        r"(\[[a-z]+:[^\n]*\][ \t\r]*\n|\s)*\[\d+:\d\d\.\d+\]": "it is lyrics with times: "
        "save them as text without",
        r"(categories:\s*\n(-[^\n]*\n)+)?conversations:\s*\n- - ": "it is a corpus of ChatterBot: "
        "make a table of it, with a question and an answer in each row",
        r"window\.YTD\.": "it is a part of Twitter's archive: make a table of its texts",
        "%!PS": "it is PostScript: save it as PDF",
        r"/\* XPM \*/": "it is an XPM picture",
        r"#define \w+_width \d+\s+#define \w+_height \d+\s+(#define \w+_hot \d+\s+)*"
        r"static (unsigned )?(char|short) \w+_bits\b": "it is an XBM picture",
        r"\s*(?i:BEGIN:VCARD)\b": "it is a card of contacts",
        r"\s*(?i:BEGIN:VCALENDAR)\b": "it is a calendar",
        r'\[\s*\{\s*"(user_)?id":\s*"[UWCDGF][A-Z\d]+",(?=[^{}]*"(team_id|members|filetype|'
        r'change_type)":)': "it is a list of Slack's, without messages",
        r"P[123]\s+(#[^\n]*\n)*\d+\s+\d+\s+[\d\s]*$": "it is a PNM picture",
    }.items()
}
PAGE = re.compile(
    r"\s*(<\?xml[^>]*>\s*)?((?><!--.*?-->)\s*)*"
    r"(<!doctype html|<html|<head|<body)\b",
    re.I | re.S,
)
# The first lines of subtitles in SubRip's and in the web's form, a number and a time; or YouTube's.
TIMES = (
    r"(?:(?:\d+[ \t]*\r?\n)?(?:\d+:)?\d+:\d+(?:[.,]\d+)? --> [^\n]*\n"
    r"|\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\r?\n)"
)
SUBTITLES = re.compile(rf"\s*(WEBVTT\b|{TIMES})")
# What the JSON of a messenger has near its beginning, and nothing else has.
MESSENGERS = {
    name: re.compile(rf"\s*{pattern}", re.DOTALL)
    for name, pattern in {
        "Telegram chat": r'\{.*"type":\s*"'
        r'(personal_chat|bot_chat|saved_messages|(private|public)_(group|supergroup|channel))"'
        r'|\{\s*"about":.*"personal_information":',
        "Discord channel": r'\{\s*"guild":\s*\{\s*"id"',
        "chat of Facebook or Instagram": r'\{(?=.*"sender_name":).*"timestamp_ms":',
        "Snapchat chat": r'\{\s*"[^"]*":\s*\[\s*\{(?=.*"Media Type":).*"Created":',
        "Messenger chat": r'\{(?=.*"senderName":).*"isUnsent":',
        "Slack channel": r'\[\s*\{(?=.*"type":\s*"message").*"ts":\s*"\d{10}\.\d{6}"',
    }.items()
}


def kind_of(head: bytes, name: str) -> str:
    """Return "pdf", "zipped", "parquet", "html", "subtitles", "chat", "messenger", "jsonl",
    "json", "table" or "text".

    `head`: the first bytes, encoding.HEAD. Raises Unreadable for an empty or a binary file.
    """
    if not head:
        raise NoText("it is empty")
    for mark, kind in ((b"%PDF-", "pdf"), (b"PAR1", "parquet"), (b"PK\3\4", "zipped")):
        if mark in (head[:1024] if kind == "pdf" else head[:4]):
            return kind
    text = decoded(head)
    if not text.strip():
        raise NoText("it holds nothing but white space")
    is_page = name.endswith((".html", ".htm")) and text.lstrip().startswith("<")
    if PAGE.match(text) or is_page:  # a page may be a part of one
        return "html"
    if XML.match(text) and not name.endswith(".txt"):
        raise Unreadable("it is XML: save its words as text, HTML, EPUB or PDF")
    if MIME.match(text) or name.endswith(".eml"):
        raise Unreadable("it is mail or a web archive: save it as text, or the page as HTML")
    for sign, reason in OTHERS.items():
        if sign.match(text):
            raise (Unreadable if ":" in reason else NoText)(reason)
    if SUBTITLES.match(text):
        return "subtitles"
    if chat_of(text, name):
        return "chat"
    if messenger_of(text):
        return "messenger"
    return json_kind(text, name) or table_kind(text, name) or "text"


def messenger_of(text: str) -> str:
    """Return which messenger's export a text begins, or ""."""
    return next((name for name, sign in MESSENGERS.items() if sign.match(text)), "")


def json_kind(text: str, name: str) -> str | None:
    """Return "jsonl" or "json", or None. A broken file with such a name is still of its kind."""
    start = text.lstrip(" \t\r\n")
    first, _, rest = start.partition("\n")
    if start.startswith("{") and parses(first):
        return "jsonl" if rest.strip() or name.endswith((".jsonl", ".ndjson")) else "json"
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    # An object over several lines, or an array; no poem in brackets, nor ["Yes," he said].
    if name.endswith(".json") or JSON.match(start):
        return "json"
    return None


def parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def table_kind(text: str, name: str) -> str | None:
    """Return "table", or None.

    Without a name that says so, the head must be a table of several rows with two columns that
    rows.py knows together, as prose has commas, too.
    """
    if name.endswith((".csv", ".tsv")):
        return "table"
    if name.endswith((".md", ".html")):
        return None
    first, *more = rows = rows_of(text, delimiter_of(text))
    is_known = any({*pair} <= {name.strip().lower() for name in first} for pair in PAIRS)
    is_regular = bool(more) and len({len(row) for row in rows[:-1]}) == 1  # the last may be cut
    return "table" if is_known and is_regular else None


def delimiter_of(text: str) -> str:
    """Return the separator of a table: the one that cuts most rows into equally many columns.

    Among several, it is the one that the first line with any of them has most often.
    """
    lines = text.splitlines()
    head = next((line for line in lines if any(d in line for d in DELIMITERS)), "")
    return max(DELIMITERS, key=lambda d: (regularity(rows_of(text, d)), head.count(d)))


def regularity(rows: list[list[str]]) -> float:
    """Return the share of rows with the commonest number of columns, or 0 if that number is 1.

    >>> regularity([["A title"], ["q", "a"], ["Hi", "Hello!"], ["Bye", "Goodbye!"]])
    0.75
    """
    [(width, n)] = Counter(map(len, rows)).most_common(1)
    return n / len(rows) if width > 1 else 0.0


def rows_of(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows of a head. Its lines may end as old Macs end them, which csv refuses."""
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter)
    return [row for row in reader if row]
