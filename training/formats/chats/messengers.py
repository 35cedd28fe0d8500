"""A chat that a messenger wrote as JSON, to conversations as those of WhatsApp.

Each messenger is a Form: where its messages have what is needed of them.

>>> text = ["Hi ", {"type": "bold", "text": "Ben"}]
>>> message = {"type": "message", "from": "Ann", "date": "2021-05-03T14:02:11", "text": text}
>>> said_in(message, "message 1", FORMS["Telegram chat"], {}).text
'Hi Ben'
"""

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from training.formats.chats.transcripts import Said, items_of_chat, oldest_first, people_of
from training.formats.found import Asked, Found, Skip, Unreadable
from training.formats.kinds import messenger_of
from training.formats.lines import head_of, open_text, parse_row
from training.formats.places import File
from training.formats.rows import checked

MAX_EXPORT = 1 << 27  # characters; a chat of 300,000 messages
NO_WORDS_SAID = "a picture, a sound, a call, a notice or a forward, without words of its own"
# What reading a message of another form raises.
ODD = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError)
MILLISECONDS = 1e11  # a time since 1970 that is larger is in milliseconds; in seconds: year 5138
NOTICE = re.compile(r"Reacted .+ to your message|Liked a message|.+ sent an attachment\.")
UNSAID = {"forwarded_from", "call_duration"}  # keys of Telegram's forwards and of Facebook's calls
Message = dict[str, Any]
Names = dict[str, str]  # of people, by what stands for them in the messages


def as_written(text: str, names: Names) -> str:
    return text


def without_mojibake(text: str, names: Names) -> str:
    """Return the text that Facebook meant: it writes each UTF-8 byte as a Latin-1 character.

    >>> without_mojibake("Gr\\u00c3\\u00bc\\u00c3\\u009fe", {})
    'Grüße'
    """
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def without_marks(text: str, names: Names) -> str:
    """Return a text of Slack's, its marks replaced by people's names and the words of links.

    >>> without_marks("<@U1> &amp; I: <https://example.org|here>", {"U1": "Ann"})
    '@Ann & I: here'
    """
    text = re.sub(r"<@(\w+)[^<>]*>", lambda found: "@" + names.get(found[1], found[1]), text)
    text = re.sub(r"<!(\w+)>", r"@\1", text)  # @channel and @here
    text = re.sub(r"<#(?:\w+\|)?([^<>|]+)\|?>", r"#\1", text)
    return html.unescape(re.sub(r"<(?:[^<>|]*\|)?([^<>]*)>", r"\1", text))


@dataclass(frozen=True)
class Form:
    """Where a message has its parts: "author.name" is what its author has as name.

    Of several places of a name, the first that holds one counts.
    """

    names: tuple[str, ...]
    text: str
    time: str  # in ISO 8601, or seconds or milliseconds since 1970
    kind: str  # what says which kind of message it is
    said: tuple[str | None, ...]  # the kinds that somebody wrote
    mend: Callable[[str, Names], str] = as_written


FORMS = {
    "Telegram chat": Form(("from",), "text", "date", "type", ("message",)),
    "Discord channel": Form(
        ("author.nickname", "author.name"), "content", "timestamp", "type", ("Default", "Reply")
    ),
    "chat of Facebook or Instagram": Form(
        ("sender_name",),
        "content",
        "timestamp_ms",
        "type",
        (None, "Generic", "Share"),
        without_mojibake,
    ),
    "Snapchat chat": Form(("From",), "Content", "Created", "Media Type", ("TEXT",)),
    "Messenger chat": Form(("senderName",), "text", "timestamp", "type", ("text", "link")),
    "Slack channel": Form(
        ("user_profile.real_name", "user", "username"),
        "text",
        "ts",
        "subtype",
        (None, "me_message", "thread_broadcast", "file_share"),
        without_marks,
    ),
}


def read_messenger(file: File, asked: Asked) -> Found:
    """Yield the conversations of all chats; the words of `asked.me` are the assistant's.

    Raises Unreadable if it is not said whose words are learned.
    """
    what = messenger_of(head_of(file))
    with open_text(file) as stream:
        text = stream.read(MAX_EXPORT + 1)
    if len(text) > MAX_EXPORT:
        raise Unreadable(f"it has more than {MAX_EXPORT:,} characters: export shorter times")
    export = parse_row(text)
    skipped: list[Skip] = []
    try:
        chats = [said_of(chat, FORMS[what], skipped) for chat in chats_of(export)]
    except ODD as error:
        raise Unreadable(f"it is an export of a chat {unknown(error)}") from None
    names = Counter(said.name for chat in chats for said in chat)
    if not names and (odd := [one.reason for one in skipped if one.reason != NO_WORDS_SAID]):
        raise Unreadable(f"nothing in it can be read: {odd[0]}")
    try:
        yield from people_of(names, asked.me, what)
    except Unreadable as error:
        if what != "Slack channel" or not asked.me:
            raise
        yield Skip("", str(error))  # a file is a day of a channel, on which one need not write
        return
    yield from skipped
    for chat in chats:
        yield from items_of_chat(iter(chat), asked.me, [])


def chats_of(export: Any) -> list[list[Message]]:
    """Return the messages of each chat: of one, of a day of Slack's, or of a whole account."""
    if isinstance(export, list):
        return [export]
    if "messages" in export:
        return [export["messages"]]
    if all(isinstance(chat, list) for chat in export.values()):  # Snapchat's, by friend
        return [*export.values()]
    parts = [export[part]["list"] for part in ("chats", "left_chats") if part in export]
    return [chat["messages"] for chats in parts for chat in chats]


def said_of(messages: list[Message], form: Form, skipped: list[Skip]) -> list[Said]:
    """Return the messages with words, the oldest first; append the others to `skipped`."""
    if not messages:
        return []
    profiled = [one for one in messages if isinstance(one, dict) and one.get("user_profile")]
    names = {str(one.get("user")): name_in(one, form) for one in profiled}
    found = []
    for number, message in enumerate(messages, 1):
        where = f"message {number}"
        try:
            said = said_in(message, where, form, names)
        except Unreadable as error:
            skipped.append(Skip(where, str(error)))
        except ODD as error:
            skipped.append(Skip(where, f"a message {unknown(error)}"))
        else:
            if said.text:
                found.append(said)
            else:
                skipped.append(Skip(where, NO_WORDS_SAID))
    return oldest_first(found)


def unknown(error: Exception) -> str:
    return f"in an unknown form ({type(error).__name__}: {error})"


def said_in(message: Message, where: str, form: Form, names: Names) -> Said:
    """Return a message, without text if nobody wrote it for this chat."""
    name = name_in(message, form)
    is_said = part(message, form.kind) in form.said and not UNSAID & {*message}
    parts = message.get(form.text) or [] if is_said else []  # a picture has none
    # Parts of Telegram's texts have a type.
    text = "".join(one if isinstance(one, str) else one["text"] for one in parts)
    text = form.mend(checked(text), names).strip()
    if NOTICE.fullmatch(text):
        text = ""
    return Said(names.get(name, name), text, moment(message[form.time]), where)


def name_in(message: Message, form: Form) -> str:
    found = next((name for place in form.names if (name := part(message, place))), None)
    return form.mend(str(found or "somebody unknown"), {})


def part(message: Message, place: str) -> Any:
    """Return what a message has at a place, or None."""
    value: Any = message
    for key in place.split("."):
        value = value.get(key) if value else None
    return value


def moment(written: str | float) -> datetime:
    """Return when a message was written, in the time of one place where the export has it.

    >>> moment("2021-05-03T14:02:11.5+02:00") == moment(1620050531500) == moment("1620050531.5")
    True
    """
    try:
        seconds = float(written)
    except ValueError:
        return datetime.fromisoformat(str(written).removesuffix(" UTC")).replace(tzinfo=None)
    seconds /= 1000 if seconds > MILLISECONDS else 1
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
