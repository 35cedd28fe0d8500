"""What only looks like another kind of file stays what it is."""

from pathlib import Path

import pytest
from texts import documents, write

from gptcore.checks import UserError
from training.formats.documents.pdf import runs_together

PROSE = "".join(f"It was a long day, of which this is line {i}.\n" for i in range(40))
QUOTES = "03.05.21, 14:02 - Ann: Are you there?\n03.05.21, 14:03 - Ben: Yes.\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("comments.txt", "<!-- a -->" * 30 + "<p"),
        ("boom.txt", "[2021-05-03 14:02:11] local.ERROR: boom\n#0 stack\n"),
        ("laravel.log", "[2021-05-03 14:02:11] local.ERROR: boom\n" * 9),
        (
            "laravel.log.1",
            "[2021-05-03 14:02] local.ERROR: no\n[2021-05-03 14:03] a.INFO: yes\n" * 9,
        ),
        ("app.txt", "2021-05-03 14:02:11 - INFO: request done\n" * 9),
        ("shifts.txt", "03.05.2021 08:00 - 16:30: early\n04.05.2021 13:00 - 21:30: late\n" * 9),
        ("dates.txt", "".join(f"0{i}.05.2021 19:30 - Talk {i}: in the hall\n" for i in range(9))),
        ("tv.txt", "Mon, 05/03/2021\n" + "".join(f"0{i}:00\tNews {i}\tABC\n" for i in range(9))),
        ("ruled.md", "---\n\nFirst part: words.\n\n---\n\nSecond part.\n"),
        ("talk.md", "---\nAnn: How are you?\nBen: Fine.\n\n---\n\nThey part.\n"),
        ("incident.md", f"2024-05-03 14:02 - Ops: alarm\n{PROSE}2024-05-03 14:09 - Ops: over\n"),
        ("diary.txt", f"3.5.2021, 14:02 - Berlin: we arrived.\n{PROSE}"),
        ("novel.txt", f"{PROSE}{QUOTES}{PROSE}"),
        ("essay.txt", f"This is what they wrote:\n{QUOTES}{PROSE}"),
        ("commas.txt", "Text, he said, is text.\nAnd, she said, so it is.\n"),
        ("scored.txt", "0.95\tHello\tHallo\n0.87\tYou\tDu\n"),
        ("prices.txt", "12.50\tA lamp\tnew\n9.95\tA book\told\n"),
        ("works.txt", "BMW eröffnet ein Werk in München.\n"),
        ("said.txt", '["Yes," he said.] And so he did.\n'),
        ("spoken.txt", "0:01\tHello\tAnn\n0:02\tGood day\tBen\n"),
    ],
)
def test_a_text_that_begins_like_something_else_is_a_text(
    tmp_path: Path, name: str, text: str
) -> None:
    assert "".join(documents(write(tmp_path / name, text))) == text


@pytest.mark.parametrize("mark", [b"BM", b"RIFF", b"ID3", b"MZ"])
def test_a_picture_or_a_program_is_none(tmp_path: Path, mark: bytes) -> None:
    for data in (b"\xd4\x07\x36", b"\0ab"):
        with pytest.raises(UserError, match=r"it is an? .*(picture|sound|program)"):
            documents(write(tmp_path / "a.txt", mark + data))


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\xff\xd8\xff\xe1\0\x18Exif", "a JPEG picture"),
        (b"\0\0\0\x18ftypheic", "a HEIC picture"),
        (b"\0\0\0\x18ftypmif1", "a HEIC picture"),
        (b"\0\0\0\x1cftypavif", "an AVIF picture"),
        (b"RIFF\x24\1\0\0WEBPVP8 ", "a WebP picture"),
        (b"II*\0\x08\0\0\0", "a TIFF or raw picture"),  # NEF, CR2, ARW and DNG, too
        (b"\0\0\0\x18ftypcrx ", "a raw picture"),
        (b"ID3\4\0\0\0", "an MP3 sound"),
        (b"\xff\xf3\x44\xc4\0", "an MP3 sound"),
        (b"OggS\0\2", "an Ogg sound"),  # as WhatsApp's and Telegram's voice messages
        (b"\0\0\0\x20ftypM4A ", "an M4A sound or M4V film"),
        (b"#!AMR\n\x3c\0", "an AMR sound"),
        (b"RIFF\x24\1\0\0WAVEfmt ", "a WAV sound"),
        (b"\0\0\0\x18ftypmp42", "an MP4 film or sound"),
        (b"\x1aE\xdf\xa3\x9fB\x86", "a WebM or Matroska film or sound"),
    ],
)
def test_a_picture_or_a_sound_is_called_so_whatever_its_name(
    tmp_path: Path, head: bytes, name: str
) -> None:
    with pytest.raises(UserError, match=f"it is {name}: leave it out"):
        documents(write(tmp_path / "a.txt", head + bytes(range(256))))


@pytest.mark.parametrize(
    ("subtitles", "spoken"),
    [
        (
            "WEBVTT\n\n00:00.000 --> 00:01.000\nPLEASE TAKE\nNOTE OF THIS.\n",
            "PLEASE TAKE|NOTE OF THIS.",
        ),
        ("WEBVTT\n\n00:00.000 --> 00:01.000\nSTYLE MATTERS.\nYes.\n", "STYLE MATTERS.|Yes."),
        ("WEBVTT\n00:00.000 --> 00:01.000\nfirst words\n", "first words"),
        (
            "WEBVTT - a title\n\nNOTE\nsaid\nby none\n\nNOTE 1\n00:00.000 --> 00:01.000\nHi.\n",
            "Hi.",
        ),
        (
            "WEBVTT\n\n00:00.000 --> 00:01.000\n[door bell]\n- MARCO: Hello [waves]\n>> DR. Ó 2:\n"
            "It is 10:30.\n\n00:01.000 --> 00:02.000\n<i>♪ music ♪</i>\n♪\nSee you (laughs)\n",
            "- Hello [waves]|It is 10:30.|See you (laughs)",
        ),
        (
            "WEBVTT\n\n00:00.000 --> 00:01.000\nAt 10:30.\nAnn: I SAY 12:30\n",
            "At 10:30.|Ann: I SAY 12:30",
        ),
    ],
)
def test_what_is_spoken_in_subtitles_is_not_a_note(
    tmp_path: Path, subtitles: str, spoken: str
) -> None:
    assert documents(write(tmp_path / "a.vtt", subtitles)) == [spoken.replace("|", "\n")]


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        (
            "Talked. %% to whom? %%\n![[Pasted image 1.png]]\nSee [[Ann|her]].",
            "Talked. ||See [[Ann|her]].",
        ),
        ("One.\n%%\nWho\n\nknows?\n%%\nTwo.", "One.||Two."),
        ("%%time\nfor %%i in (*) do echo %%i\n%%time\n100%% and 50%%", None),
        ("%%\nnever closed", None),
        ("```matlab\n%%\na = 1;\n%%\n```\n%% out %%\nEnd.", "```matlab\n%%\na = 1;\n%%\n```||End."),
    ],
)
def test_a_note_of_obsidian_is_read_without_what_it_does_not_show(
    tmp_path: Path, note: str, shown: str | None
) -> None:
    path = write(tmp_path / "a.md", note)
    assert documents(path) == [note if shown is None else shown.replace("||", "\n\n")]
    assert documents(write(tmp_path / "a.txt", note)) == [note]


def test_a_few_long_words_are_addresses() -> None:
    host = "https://averylongnameofahostwithoutanydots.example.org/"
    assert not runs_together(f"Они живут в доме у моря. {host}")
    assert not runs_together(f"Wir wohnen am See. {host} {host} {host}")
    assert not runs_together("Они живут в доме у моря. " * 200 + f"{host} " * 4)
    assert runs_together(f"{host} " * 4)
