"""Chats that messengers export as JSON: who says what to whom, and what nobody said."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from texts import documents, told, write, zipped

from gptcore.checks import UserError
from gptcore.text.chat_template import messages_of
from training.formats.found import Asked
from training.formats.places import find_files
from training.look.look import look


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


def words(message: dict[str, Any]) -> str:
    return "Yes, here." if isinstance(message["text"], list) else message["text"]


DISCORD = {
    "guild": {"id": "1", "name": "Friends"},
    "channel": {"id": "2", "type": "GuildTextChat", "name": "general"},
    "messages": [
        {
            "id": message["id"],
            "type": "Default" if message["from"] else "GuildMemberJoin",
            "timestamp": message["date"] + (".512+02:00" if message["id"] % 2 else ""),
            "content": words(message),
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
SNAPCHAT = {
    "ben": [
        {
            "From": message["from"] or "Ann",
            "Media Type": "TEXT" if words(message) else "MEDIA",
            "Created": f"{message['date'].replace('T', ' ')} UTC",
            "Content": words(message) or None,
            "IsSender": message["from"] == "Ann",
        }
        for message in TELEGRAM["messages"]
    ],
    "cleo": [],
}
EXPORTS = {
    "Telegram": TELEGRAM,
    "account": ACCOUNT,
    "left chats": {"about": "", "personal_information": {}, "left_chats": ACCOUNT["chats"]},
    "Discord": DISCORD,
    "Facebook": FACEBOOK,
    "Messenger": MESSENGER,
    "Slack": SLACK,
    "Snapchat": SNAPCHAT,
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_a_messenger_teaches_the_words_of_one_person(
    tmp_path: Path, name: str, indent: int | None
) -> None:
    path = write(tmp_path / "result.json", json.dumps(EXPORTS[name], indent=indent))
    with pytest.raises(
        UserError, match=r"it is a .* of Ann .2 mess.* words are learned, such as --me \"Ann"
    ):
        documents(path)
    with pytest.raises(UserError, match=r"did you mean --me \"Ben\"\? it has"):
        documents(path, me=("ben",))
    assert documents(path, me=("Ben",)) == [
        messages_of(["Are you there?", "Yes, here."]),
        messages_of(["Coffee?", "Sure."]),
    ]
    first = 3 if name == "Facebook" else 1  # which has the newest message first
    said = told(path, me=("Ben",))
    assert "skipped 2: a picture, a sound, a call, a notice or a forward, without words" in said
    assert f"words of its own (first: message {first})" in said


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
    call = {**messages[0], "content": "You called Ben.", "call_duration": 0}
    export = {"participants": [{"name": "Ben"}], "messages": [call, *messages]}
    path = write(tmp_path / "message_1.json", export)
    [chat] = documents(path, me=("Zoë",))
    assert [turn["content"] for turn in chat] == ["Ciao", "Why?"]
    [chat] = documents(path, me=("Ben",))
    assert chat[0]["content"] == "Grüße 😊"


def test_slack_is_read_with_names_for_ids_and_words_for_links(tmp_path: Path) -> None:
    text = "<@U2> &amp; I read <https://example.org/a|this page> of <https://example.org>"
    text += ": <!channel>, see <#C1|general> and <#C2>"
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
    assert (
        chat[0]["content"]
        == "@Ben & I read this page of https://example.org: @channel, see #general and #C2"
    )


def test_a_day_of_slack_on_which_one_does_not_write_is_skipped(tmp_path: Path) -> None:
    day = write(tmp_path / "2021-05-03.json", SLACK)
    other = write(tmp_path / "2021-05-04.json", [one for one in SLACK if one["user"] == "U1"])
    said = look(find_files([day, other]), Asked(me=("Ben",))).table()
    assert "03.json: Slack channel of Ann (2 messages), Ben (2 messages), 2 conv" in said
    assert '04.json: not used: --me "Ben" is not in this Slack channel' in said


def test_lists_of_slack_beside_the_days_are_left_out(tmp_path: Path) -> None:
    channel = {"id": "C024BE91L", "name": "general", "created": 1449252889, "members": ["U1"]}
    change = {"user_id": "U023BECGF", "user_name": "ann", "date": "1449", "change_type": "added"}
    members = {
        "channels.json": [channel | {"topic": {"value": ""}}],
        "dms.json": [{"id": "D024BE91L", "created": 1449252889, "members": ["U1", "U2"]}],
        "general/2021-05-03.json": SLACK,
        "groups.json": [],
        "integration_logs.json": [change],
        "users.json": [{"id": "U023BECGF", "team_id": "T021F9ZE2", "name": "ann", "profile": {}}],
    }
    archive = zipped({name: json.dumps(value) for name, value in members.items()})
    said = told(write(tmp_path / "export.zip", archive), me=("Ben",))
    unused = re.findall(r"/(\w+)\.json: not used: (.*)", said)
    assert "2021-05-03.json: Slack channel of Ann" in said
    a_list = "it is a list of Slack's, without messages"
    assert unused == [
        ("channels", a_list),
        ("dms", a_list),
        ("groups", "it holds no document"),
        ("integration_logs", a_list),
        ("users", a_list),
    ]


def test_a_forward_of_telegram_is_nobodys_own_words(tmp_path: Path) -> None:
    news = {**telegram_message(7, "Ben", "News!", day=4), "forwarded_from": "A channel"}
    path = write(tmp_path / "a.json", {**TELEGRAM, "messages": [*TELEGRAM["messages"], news]})
    assert "News" not in str(documents(path, me=("Ben",)))


def test_an_export_of_telegram_in_an_unknown_form_is_refused(tmp_path: Path) -> None:
    for messages in ([{"id": 1}], [7], None, []):
        path = write(tmp_path / "result.json", {**TELEGRAM, "messages": messages})
        with pytest.raises(UserError, match=r"in an unknown form|in which nobody writes"):
            documents(path, me=("Ben",))


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"text": "Cut \ud83d"}, "a character is only half a surrogate pair"),
        ({"date": float("inf")}, r"a message in an unknown form \(OverflowError: .*\)"),
        ({"date": None}, r"a message in an unknown form \(TypeError: .*\)"),
        ({"text": [{"href": "x"}]}, r"a message in an unknown form \(KeyError: 'text'\)"),
    ],
)
def test_one_bad_message_costs_no_account(tmp_path: Path, odd: dict[str, Any], reason: str) -> None:
    bad = {**telegram_message(7, "Ann", "Hi", day=4), **odd}
    path = write(tmp_path / "a.json", {**TELEGRAM, "messages": [*TELEGRAM["messages"], bad]})
    said = told(path, me=("Ben",))
    assert re.search(rf"skipped 1: {reason} \(first: message 7\)", said), said
    assert len(documents(path, me=("Ben",))) == 2


def test_what_opens_a_talk_answers_nobody_and_is_counted(tmp_path: Path) -> None:
    opening = telegram_message(7, "Ben", "Anybody here?", day=5)
    answer = [telegram_message(8, "Ann", "Yes.", day=5), telegram_message(9, "Ben", "Fine.", day=5)]
    messages = [*TELEGRAM["messages"], opening, *answer]
    path = write(tmp_path / "a.json", {**TELEGRAM, "messages": messages})
    why = "it begins a conversation, so there is nothing that it answers"
    assert f"skipped 1: {why} (first: message 7)" in told(path, me=("Ben",))
    assert [turn["content"] for turn in documents(path, me=("Ben",))[-1]] == ["Yes.", "Fine."]
