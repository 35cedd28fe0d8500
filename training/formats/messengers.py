"""A chat that Telegram or DiscordChatExporter wrote as JSON, to conversations as those of WhatsApp.

>>> text = ["Hi ", {"type": "bold", "text": "Ben"}]
>>> message = {"type": "message", "from": "Ann", "date": "2021-05-03T14:02:11", "text": text}
>>> said_in(message, "message 1").text
'Hi Ben'
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from training.formats.chats import Said, items_of_chat, people_of
from training.formats.found import Asked, Found, Skip, Unreadable
from training.formats.lines import open_text
from training.formats.places import File
from training.formats.rows import checked, parse_row

MAX_EXPORT = 1 << 27  # characters; a chat of 300,000 messages
NO_WORDS_SAID = "a picture, a sound, a call or a notice, without words"


def read_messenger(file: File, asked: Asked) -> Found:
    """Yield the conversations of all chats; the words of `asked.me` are the assistant's.

    Raises Unreadable if it is not said whose words are learned.
    """
    with open_text(file) as stream:
        text = stream.read(MAX_EXPORT + 1)
    if len(text) > MAX_EXPORT:
        raise Unreadable(f"it has more than {MAX_EXPORT:,} characters: export shorter times")
    export = parse_row(text)
    skipped: list[Skip] = []
    try:
        chats = [
            [*said_of(chat["messages"], skipped)]
            for chat in export.get("chats", {"list": [export]})["list"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise Unreadable(f"it is an export of a chat in an unknown form ({reason})") from None
    names = Counter(said.name for chat in chats for said in chat)
    what = "Discord channel" if "guild" in export else "Telegram chat"
    yield from people_of(names, asked.me, what)
    yield from skipped
    for chat in chats:
        yield from items_of_chat(iter(chat), asked.me, [])


def said_of(messages: list[dict[str, Any]], skipped: list[Skip]) -> Iterator[Said]:
    """Yield the messages with words; append the others to `skipped`."""
    for message in messages:
        where = f"message {message['id']}"
        try:
            said = said_in(message, where)
        except Unreadable as error:
            skipped.append(Skip(where, str(error)))
            continue
        if said.text:
            yield said
        else:
            skipped.append(Skip(said.where, NO_WORDS_SAID))


def said_in(message: dict[str, Any], where: str) -> Said:
    """Return a message, without text if nobody wrote it; parts of Telegram's texts have a type."""
    is_notice = message["type"] not in ("message", "Default", "Reply")
    author = message.get("author") or {}
    name = message.get("from") or author.get("nickname") or author.get("name") or "somebody unknown"
    parts = message.get("text") or message.get("content") or []  # a notice has none
    words = [part if isinstance(part, str) else part["text"] for part in parts]
    at = datetime.fromisoformat(message.get("date") or message["timestamp"])
    at = at.replace(tzinfo=None)  # of one place, which may change between summer and winter
    return Said(str(name), "" if is_notice else checked("".join(words)).strip(), at, where)
