"""Chats that people export: who says what to whom, and where one conversation ends."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from test_formats_read import documents, told, write

from gptcore.checks import UserError

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
5/3/21, 2:03\u202fPM - Ben: \u200eIMG-1.jpg (file attached)
Yes: here

and waiting
5/3/21, 2:04\u202fPM - Ben: <Mídia oculta>
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
        [("user", "Are you there?\nHello?"), ("assistant", "Yes: here\n\nand waiting")],
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
        "{:%d/%m/%Y à %H:%M} - ",  # French
        "[{:%Y/%-m/%-d 上%-I:%M:%S}] ",  # Chinese
        "{:%Y. %-m. %-d. 오 %-I:%M} - ",  # Korean
    ],
)
def test_a_talk_past_midnight_is_one_whatever_the_dates_look_like(
    tmp_path: Path, form: str
) -> None:
    times = (datetime(2021, 5, 3, 23, 59), datetime(2021, 5, 4, 0, 1), datetime(2021, 5, 4, 23))
    halves = {"XM": ("a.\xa0m.", "p.\xa0m."), "上": ("上午", "下午"), "오": ("오전", "오후")}
    lines = []
    for at in times:
        line = form.format(at)
        for half, words in halves.items():
            line = line.replace(half, words[at.hour >= 12])
        lines += [f"{line}{name}: Hi" for name in ("Ann", "Ben")]
    found = documents(write(tmp_path / "_chat.txt", "\n".join(lines)), me=("Ben",))
    assert [len(chat) for chat in found] == [4, 2]


@pytest.mark.parametrize("above", ["", "a title\n"])
def test_a_chat_is_known_though_its_first_message_is_long(tmp_path: Path, above: str) -> None:
    verse = "\n".join(f"line {i}" for i in range(45))
    chat = f"{above}03.05.21, 14:02 - Ann: {verse}\n03.05.21, 14:03 - Ben: Fine.\n"
    [[_, reply]] = documents(write(tmp_path / "_chat.txt", chat), me=("Ben",))
    assert reply == {"role": "assistant", "content": "Fine."}


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
        telegram_message(4, "Ann", "Cut \ud83d"),  # half of a character
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
ACCOUNT = {
    "about": "Here is the data you requested. Remember: Telegram is ad free.",
    "personal_information": {"first_name": "Ben"},
    "chats": {"about": "This page lists all chats.", "list": [TELEGRAM]},
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("export", [TELEGRAM, ACCOUNT, DISCORD], ids=["chat", "account", "Discord"])
def test_an_export_of_telegram_or_discord_teaches_the_words_of_one_person(
    tmp_path: Path, export: dict[str, Any], indent: int | None
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
    skipped = told(path, me=("Ben",))
    assert "skipped 2: a picture, a sound, a call or a notice, without words (first: m" in skipped
    assert "skipped 1: a character is only half a surrogate pair (first: message 4)" in skipped


def test_an_export_of_telegram_in_an_unknown_form_is_refused(tmp_path: Path) -> None:
    for messages in ([{"id": 1}], [7], None, []):
        path = write(tmp_path / "result.json", {**TELEGRAM, "messages": messages})
        with pytest.raises(UserError, match=r"in an unknown form|in which nobody writes"):
            documents(path, me=("Ben",))
