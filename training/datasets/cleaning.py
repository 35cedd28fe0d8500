"""A filter for training texts: it keeps plain ASCII English without addresses or abuse.

>>> clean(["Hi\u2019s caf\u00e9?", "It is nice."])
[{'role': 'user', 'content': "Hi's cafe?"}, {'role': 'assistant', 'content': 'It is nice.'}]
>>> clean(["See www.example.com", "Thanks."]) is None
True

The word lists in ``unwanted.json`` are short: they miss some abuse, and match some harmless text.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from gptcore.text.chat_template import Message, messages_of
from training.data.corpus import Document, document_number

Raw = str | list[str]  # a text, or the turns of user and assistant

MAX_TURN = 2000  # characters of a turn
MAX_CHAT = 3000  # characters of a conversation
MIN_TEXT = 200  # characters of a text
MAX_TEXT = 6000  # characters of a text

MOJIBAKE = re.compile(r"[âÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œžŸŽ]")
PLAIN = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "`": "'", "´": "'"}
    | {"“": '"', "”": '"', "„": '"', "‟": '"', "″": '"', "«": '"', "»": '"'}
    | {"‐": "-", "‑": "-", "‒": "-", "–": "-", "—": " - ", "―": " - ", "−": "-"}
    | {"…": "...", "•": "-", "×": "x", "÷": "/", "æ": "ae", "Æ": "Ae", "œ": "oe", "ß": "ss"}
    | {"ø": "o", "Ø": "O", "ł": "l", "đ": "d", "ı": "i", "\u200b": "", "\ufeff": "", "\xad": ""}
)
ADDRESS = re.compile(r"https?:|www\.|\b\w+\.(com|org|net|edu|gov|io)\b|\S@\S+\.\w", re.IGNORECASE)
CODE = re.compile(r"[{}\\|~^<>]|[=!]=|\w\(\)|;\s*\n|\bdef \w+\(|\w_\w|'''")


def clean(raw: Raw) -> Document | None:
    """Return the cleaned document, or None if it is not fit for training."""
    return clean_text(raw) if isinstance(raw, str) else clean_chat(raw)


def clean_chat(turns: list[str]) -> list[Message] | None:
    """Return a conversation that ends with a reply, cut to MAX_CHAT characters; None if unfit."""
    turns = [plain(turn) for turn in turns]
    if not all(is_fit(turn) and len(turn) <= MAX_TURN for turn in turns):
        return None
    while len(turns) % 2 or sum(map(len, turns)) > MAX_CHAT:
        turns = turns[:-1]
    return messages_of(turns) or None


def clean_text(text: str) -> str | None:
    """Return a text, or None if it is abusive, too long or short, or ends within a sentence.

    Only the list "always" applies, because stories may have wolves and deaths in them.
    """
    text = plain(text)
    sound = is_fit(text, "always") and MIN_TEXT <= len(text) <= MAX_TEXT
    return text if sound and text[-1] in ".!?\"')" else None


def is_fit(text: str, *lists: str) -> bool:
    if not text or not text.isascii() or ADDRESS.search(text) or CODE.search(text):
        return False
    return not any(unwanted(name).search(text) for name in lists or ("always", "chat"))


def plain(text: str) -> str:
    """Replace quotes, dashes and accented letters by ASCII; other characters stay."""
    if MOJIBAKE.search(text):
        text = repaired(text)
    text = unicodedata.normalize("NFKD", text.translate(PLAIN))
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = re.sub(r"[^\S\n]+", " ", text.replace("\r", "\n"))
    return re.sub(r" ?\n[ \n]*", "\n", text).strip()


def repaired(text: str) -> str:
    """Decode UTF-8 that was read as Windows-1252; return other texts unchanged.

    Windows-1252 lacks five bytes, for which Latin-1 stands in.
    """
    try:
        raw = b"".join(c.encode("cp1252" if ord(c) > 255 else "latin-1") for c in text)
        return raw.decode("utf-8")
    except UnicodeError:
        return text


@cache
def unwanted(name: str) -> re.Pattern[str]:
    words = json.loads((Path(__file__).parent / "unwanted.json").read_text(encoding="utf-8"))
    return re.compile(rf"\b({'|'.join(words[name])})\b", re.IGNORECASE)


def without_repeats(documents: Iterable[Document]) -> Iterator[Document]:
    seen = set()
    for document in documents:
        if (number := document_number(document)) not in seen:
            seen.add(number)
            yield document
