"""Chats that people export: who says what to whom, and where one conversation ends."""

import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from test_formats_read import documents, told, write

from gptcore.checks import UserError
from training.formats.places import find_files
from training.look.look import look

WHATSAPP = """\
[03.05.21, 14:00:11] Ann: \u200eMessages and calls are end-to-end encrypted.
[03.05.21, 14:02:11] Ann: Are you there?
[03.05.21, 14:02:30] Ann: Hello?
[03.05.21, 14:03:00] Ben: Yes: here
and waiting
\u200e[03.05.21, 14:04:00] Ben: \u200eimage omitted
[04.05.21, 09:00:00] Ben: Morning!
[04.05.21, 09:01:00] Ann: Morning. \u200e<This message was edited>
[04.05.21, 09:02:00] Ben: Coffee?
"""
ANDROID = """\
5/3/21, 1:58 PM - Messages and calls are end-to-end encrypted. Tap to learn more.
5/3/21, 2:02\u202fPM - Ann: Are you there?
5/3/21, 2:02\u202fPM - Ann: Hello?
5/3/21, 2:03\u202fPM - Ben: Yes: here
and waiting
5/3/21, 2:04\u202fPM - Ben: <Media omitted>
5/4/21, 9:00\u202fAM - Ben: Morning!
5/4/21, 9:01\u202fAM - Ann: Morning. <This message was edited>
5/4/21, 9:02\u202fAM - Ben: Coffee?
"""


@pytest.mark.parametrize("export", [WHATSAPP, ANDROID], ids=["iPhone", "Android"])
def test_a_whatsapp_export_teaches_the_words_of_one_person(tmp_path: Path, export: str) -> None:
    path = write(tmp_path / "_chat.txt", export)
    with pytest.raises(UserError, match=r"Ben \(3 messages\).*--me \"Ann\""):
        documents(path)
    with pytest.raises(UserError, match=r"--me \"Cleo\" is not in this WhatsApp chat: it has"):
        documents(path, me=("Cleo",))
    with pytest.raises(UserError, match=r"\"Cleo\" or --me \"Dan\" is not .*--me takes a second"):
        documents(path, me=("Cleo", "Dan"))
    assert documents(path, me=("Cleo", "Ben")) == documents(path, me=("Ben",))
    for part_or_misspelt in ("ben", "en", "Benn"):
        with pytest.raises(UserError, match=r"did you mean --me \"Ben\"\? it has"):
            documents(path, me=(part_or_misspelt,))
    said = [[(m["role"], m["content"]) for m in chat] for chat in documents(path, me=("Ben",))]
    assert said == [
        [("user", "Are you there?\nHello?"), ("assistant", "Yes: here\nand waiting")],
        [("user", "Morning."), ("assistant", "Coffee?")],
    ]
    assert "skipped 2: a picture, a sound, a deleted message or a notice" in told(path, me=("Ben",))


@pytest.mark.parametrize(
    "form",
    [
        "{:%d.%m.%y, %H:%M} - ",
        "[{:%d.%m.%y, %H:%M:%S}] ",
        "{:%-m/%-d/%y, %-I:%M %p} - ",
        "[{:%-m/%-d/%y, %-I:%M:%S\u202f%p}] ",
        "{:%Y-%m-%d, %H:%M} - ",
        "[{:%Y-%m-%d, %H:%M:%S}] ",
        "{:%Y/%m/%d, %H:%M} - ",
        "{:%-d/%-m/%Y, %-I:%M} XM - ",  # Spanish
    ],
)
def test_a_talk_past_midnight_is_one_whatever_the_dates_look_like(
    tmp_path: Path, form: str
) -> None:
    times = (datetime(2021, 5, 3, 23, 59), datetime(2021, 5, 4, 0, 1), datetime(2021, 5, 4, 23))
    lines = [
        form.format(at).replace("XM", f"{at:%p}".lower().replace("m", ".\xa0m.")) + f"{name}: Hi"
        for at in times
        for name in ("Ann", "Ben")
    ]
    found = documents(write(tmp_path / "_chat.txt", "\n".join(lines)), me=("Ben",))
    assert [len(chat) for chat in found] == [4, 2]


def node(parent: str | None, role: str, parts: list, kind: str = "text", **more: Any) -> dict:
    """A message as ChatGPT exports it."""
    content = {"content_type": kind, "parts": parts}
    return {"message": {"author": {"role": role}, "content": content, **more}, "parent": parent}


CHATGPT = {
    "title": "Greetings",
    "mapping": {
        "root": {"message": None, "parent": None, "children": ["0"]},
        "0": node("root", "system", [""]),
        "1": node("0", "user", ["Hi"]),
        "2": node("1", "assistant", ["A reply that was made again."]),
        "3": node("1", "assistant", ["Let me look."], recipient="all"),
        "4": node("3", "assistant", ["search('Hi')"], "code", recipient="browser"),
        "5": node("4", "tool", ["A page."]),
        "6": node("5", "assistant", ["Hello!"]),
        "7": node("6", "user", ["Bye"]),
        "8": node("7", "assistant", ["Goodbye!"]),
    },
    "current_node": "8",
}
PICTURE = {"mapping": {"1": node(None, "user", [{"asset_pointer": "file-1"}, "What is it?"])}}
PICTURE = {**PICTURE, "current_node": "1"}


def test_chatgpts_export_is_read_along_the_branch_that_was_shown_last(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [CHATGPT, PICTURE])
    assert documents(path) == [
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Let me look.\nHello!"},
            {"role": "user", "content": "Bye"},
            {"role": "assistant", "content": "Goodbye!"},
        ]
    ]
    said = told(path)
    assert "JSON, 1 conversation" in said
    assert "skipped 2: a message of the role 'tool' (first: value 1)" in said
    assert "skipped 1: message 1 has parts that are not text (first: value 2)" in said


def test_claudes_export_is_read_without_its_thoughts(tmp_path: Path) -> None:
    human = {"sender": "human", "text": "Shorten it.", "content": [], "files": []}
    thoughts = [{"type": "thinking", "thinking": "Hm."}, {"type": "tool_use", "name": "search"}]
    reply = {
        "sender": "assistant",
        "text": "",
        "content": [*thoughts, {"type": "text", "text": "So."}],
    }
    attached = {**human, "attachments": [{"extracted_content": "A long text."}]}
    picture = {**human, "files": [{"file_name": "a.png"}]}
    talks = [
        {"uuid": "1", "name": "One", "chat_messages": [attached, reply]},
        {"uuid": "2", "name": "Two", "chat_messages": [picture, reply]},
        {"uuid": "3", "name": "Odd", "chat_messages": ["Hi"]},
    ]
    path = write(tmp_path / "conversations.json", talks)
    assert documents(path) == [
        [
            {"role": "user", "content": "A long text.\nShorten it."},
            {"role": "assistant", "content": "So."},
        ]
    ]
    assert "skipped 1: message 1 has parts that are not text (first: value 2)" in told(path)
    assert "skipped 1: it is an export of an assistant in an unknown form" in told(path)
    assert len(documents(write(tmp_path / "one.json", talks[0]))) == 1


def telegram_message(number: int, name: str | None, text: Any, day: int = 3) -> dict[str, Any]:
    at = f"2021-05-{day:02}T14:{number:02}:11"
    kind = "message" if name else "service"
    return {"id": number, "type": kind, "date": at, "from": name, "text": text}


TELEGRAM = {
    "name": "Ben",
    "type": "personal_chat",
    "id": 4021,
    "messages": [
        telegram_message(1, None, ""),
        telegram_message(2, "Ann", "Are you there?"),
        telegram_message(3, "Ben", ["Yes, ", {"type": "bold", "text": "here"}, "."]),
        telegram_message(4, "Ann", ""),
        telegram_message(5, "Ann", "Coffee?", day=4),
        telegram_message(6, "Ben", "Sure.", day=4),
    ],
}
DISCORD = {
    "guild": {"id": "1", "name": "Friends"},
    "channel": {"id": "2", "type": "GuildTextChat", "name": "general"},
    "messages": [
        {
            "id": message["id"],
            "type": "Default" if message["from"] else "GuildMemberJoin",
            "timestamp": message["date"] + (".512+02:00" if message["id"] % 2 else ""),
            "content": "Yes, here." if isinstance(message["text"], list) else message["text"],
            "author": {
                "id": "7",
                "name": f"{message['from']}.1".lower(),
                "nickname": message["from"],
            },
        }
        for message in TELEGRAM["messages"]
    ],
}
ACCOUNT = {  # in the language of the program; what is above the chats may fill many pages
    "about": "Hier sind die angeforderten Daten.",
    "personal_information": {"first_name": "Ben"},
    "contacts": {"list": [{"first_name": "Ann", "phone_number": "0049 30 1234567"}] * 2000},
    "chats": {"about": "Auf dieser Seite sind alle Chats.", "list": [TELEGRAM]},
}


def milliseconds(message: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(f"{message['date']}+00:00").timestamp() * 1000)


def words(message: dict[str, Any]) -> str:
    return "Yes, here." if isinstance(message["text"], list) else message["text"]


FACEBOOK = {  # and Instagram: message_1.json, the newest message first
    "participants": [{"name": "Ben"}, {"name": "Ann"}],
    "messages": [
        {
            "sender_name": message["from"] or "Ann",
            "timestamp_ms": milliseconds(message),
            **({"content": words(message)} if words(message) else {"photos": [{"uri": "1.jpg"}]}),
            "is_geoblocked_for_viewer": False,
        }
        for message in reversed(TELEGRAM["messages"])
    ],
    "title": "Ann",
    "thread_path": "inbox/ann_1",
}
MESSENGER = {  # Facebook's chats with end-to-end encryption
    "participants": ["Ann", "Ben"],
    "threadName": "Ann_1",
    "messages": [
        {
            "isUnsent": False,
            "media": [],
            "reactions": [],
            "senderName": message["from"] or "Ann",
            "text": words(message),
            "timestamp": milliseconds(message),
            "type": "text" if words(message) else "placeholder",
        }
        for message in TELEGRAM["messages"]
    ],
}
SLACK = [  # a day of a channel, which names people by their ids
    {
        **({} if message["from"] else {"subtype": "channel_join"}),
        "user": {"Ann": "U1", "Ben": "U2"}.get(message["from"], "U1"),
        "type": "message",
        "ts": f"{milliseconds(message) / 1000:.6f}",
        "text": words(message) if message["from"] else "<@U1> has joined the channel",
        **({"user_profile": {"real_name": message["from"]}} if message["id"] in (2, 3) else {}),
    }
    for message in TELEGRAM["messages"]
]
EXPORTS = [TELEGRAM, ACCOUNT, DISCORD, FACEBOOK, MESSENGER, SLACK]
NAMES = ["Telegram", "account", "Discord", "Facebook", "Messenger", "Slack"]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("export", EXPORTS, ids=NAMES)
def test_an_export_of_a_messenger_teaches_the_words_of_one_person(
    tmp_path: Path, export: Any, indent: int | None
) -> None:
    path = write(tmp_path / "result.json", json.dumps(export, indent=indent))
    with pytest.raises(
        UserError, match=r"it is a .* of Ann .2 mess.* words are learned: --me \"Ann"
    ):
        documents(path)
    with pytest.raises(UserError, match=r"did you mean --me \"Ben\"\? it has"):
        documents(path, me=("ben",))
    said = [[(m["role"], m["content"]) for m in chat] for chat in documents(path, me=("Ben",))]
    assert said == [
        [("user", "Are you there?"), ("assistant", "Yes, here.")],
        [("user", "Coffee?"), ("assistant", "Sure.")],
    ]
    assert (
        "skipped 2: a picture, a sound, a call, a notice or a forward, without words of its own "
        f"(first: message {6 if export is FACEBOOK else 1})" in told(path, me=("Ben",))
    )


def test_an_archive_with_a_chat_says_first_whose_words_may_be_learned(tmp_path: Path) -> None:
    archive = tmp_path / "chat.zip"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("00000001-PHOTO.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0")
        members.writestr("_chat.txt", WHATSAPP)
    with pytest.raises(UserError, match=r"found: .*_chat\.txt: it is a WhatsApp chat of Ben"):
        look(find_files([archive])).check()


def test_facebook_is_read_without_its_mojibake_and_its_notices(tmp_path: Path) -> None:
    said = [("Zoë", "Grüße 😊"), ("Ben", "Ciao"), ("Zoë", "Liked a message"), ("Zoë", "Why?")]
    messages = [
        {
            "sender_name": name.encode().decode("latin-1"),
            "timestamp_ms": 1620050531000 + number,
            "content": text.encode().decode("latin-1"),
        }
        for number, (name, text) in enumerate(said)
    ]
    path = write(tmp_path / "message_1.json", {"participants": [], "messages": messages})
    [chat] = documents(path, me=("Zoë",))
    assert [turn["content"] for turn in chat] == ["Ciao", "Why?"]
    [chat] = documents(path, me=("Ben",))
    assert chat[0]["content"] == "Grüße 😊"


def test_slack_is_read_with_names_for_ids_and_words_for_links(tmp_path: Path) -> None:
    text = "<@U2> &amp; I read <https://example.org/a|this page> of <https://example.org>"
    messages = [
        {"type": "message", "user": "U1", "ts": "1620050531.000100", "text": text},
        {
            "type": "message",
            "user": "U2",
            "ts": "1620050532.000100",
            "text": "Fine",
            "user_profile": {"real_name": "Ben"},
        },
    ]
    [chat] = documents(write(tmp_path / "2021-05-03.json", messages), me=("Ben",))
    assert chat[0]["content"] == "@Ben & I read this page of https://example.org"


def test_a_forward_of_telegram_is_nobodys_own_words(tmp_path: Path) -> None:
    news = {**telegram_message(7, "Ben", "News!", day=4), "forwarded_from": "A channel"}
    path = write(tmp_path / "a.json", {**TELEGRAM, "messages": [*TELEGRAM["messages"], news]})
    assert "News" not in str(documents(path, me=("Ben",)))


def test_an_export_of_telegram_in_an_unknown_form_is_refused(tmp_path: Path) -> None:
    for messages in ([{"id": 1}], [7], None, []):
        path = write(tmp_path / "result.json", {**TELEGRAM, "messages": messages})
        with pytest.raises(UserError, match=r"in an unknown form|in which nobody writes"):
            documents(path, me=("Ben",))
