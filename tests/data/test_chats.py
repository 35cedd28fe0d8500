"""Chats that people export: who says what to whom, and where one conversation ends."""

from datetime import datetime
from pathlib import Path

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
        documents(path, me="Cleo")
    for part_or_misspelt in ("ben", "en", "Benn"):
        with pytest.raises(UserError, match=r"did you mean --me \"Ben\"\? it has"):
            documents(path, me=part_or_misspelt)
    said = [[(m["role"], m["content"]) for m in chat] for chat in documents(path, me="Ben")]
    assert said == [
        [("user", "Are you there?\nHello?"), ("assistant", "Yes: here\nand waiting")],
        [("user", "Morning."), ("assistant", "Coffee?")],
    ]
    assert "skipped 2: a picture, a sound, a deleted message or a notice" in told(path, me="Ben")


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
    found = documents(write(tmp_path / "_chat.txt", "\n".join(lines)), me="Ben")
    assert [len(chat) for chat in found] == [4, 2]
