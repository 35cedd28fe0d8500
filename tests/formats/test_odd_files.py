"""Some eighty wrong or odd files: one clear line, and nothing left half made."""

import base64
import gzip
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Refused
from test_books import docx, epub, run
from test_pdf import pdf
from texts import CHAT, zipped

from training.__main__ import main

Content = Callable[[], bytes] | bytes
PAGE = (ROOT / "docs" / "odd-files.md").read_text(encoding="utf-8")
SAID = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", PAGE, re.MULTILINE))
ROW = json.dumps({"messages": CHAT})
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256))


def locked_pdf() -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("Secret"))))
    writer.encrypt("password", algorithm="RC4-128")
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()


def members_of(archive: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        return {name: found.read(name).decode() for name in found.namelist()}


def tarred(text: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("texts/a.txt")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


MAIL = """\
From ann@example.org Mon May  3 14:02:11 2021
From: Ann <ann@example.org>
Subject: Boats,
 and harbours
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

"""
DISCORD = "[05/03/2021 2:02 PM] ann\nAre you there?\n\n[05/03/2021 2:03 PM] ben (pinned)\nYes.\n\n"
NOTEBOOK = {"cells": [{"cell_type": "markdown", "source": ["Words."]}], "nbformat": 4}
SUBTITLES = """\
1
00:00:01,000 --> 00:00:02,500
<i>Are you</i> there?

2
00:00:03,000 --> 00:00:04,500
Yes. I am
42.

"""


TALK = """\
WEBVTT
Kind: captions
Style:
::cue(c.colorCCCCCC) { color: rgb(204,204,204); }
##

NOTE Made by a program.

00:01.000 --> 00:02.000 align:start position:0%
Are<00:01.500><c> you</c><00:01.800><c> there?</c>

00:02.000 --> 00:02.010 align:start position:0%
Are you there?

the name of a cue
0:0:3.0 --> 0:0:4.500
<v Ann Smith>Yes, 2 &lt; 3.</v>
"""


def bomb() -> bytes:
    return zipped({"a.txt": b"a" * 60_000_000})


REFUSED: dict[str, Content] = {
    "empty.txt": b"",
    "blank.txt": b" \n\t\n" * 99,
    "nuls.txt": b"word\0" * 99,
    "picture.txt": PNG,
    "photo.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + PNG,
    "icon.xpm": b'/* XPM */\nstatic char * icon[] = {\n"2 1 1 1",\n"  c None",\n"  "};\n',
    "icon.xbm": b"#define icon_width 8\n#define icon_height 2\n#define icon_x_hot 1\n"
    b"#define icon_y_hot 1\nstatic unsigned char icon_bits[] = {\n  0x01, 0x02};\n",
    "icon.ppm": b"P3\n# made by hand\n2 1\n255\n0 0 0 255 255 255\n",
    "friends.vcf": b"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Ann\r\nTEL:+1 555 0100\r\nEND:VCARD\r\n" * 2,
    "dates.ics": b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nSUMMARY:Dentist\r\n",
    "drawing.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 3 3\nshowpage\n",
    "program": b"\x7fELF\x02\x01\x01" + bytes(99),
    "damaged.txt": "Grüße aus Köln. ".encode() * 9 + b"\xff",
    "locked.pdf": locked_pdf,
    "scan.pdf": lambda: pdf(""),
    "cut.pdf": pdf("Once upon a time.")[:200],
    "glued.pdf": pdf("Thewordsofalinestandtogether, assomeprogramswritethespacelesspages. " * 2),
    "bomb.zip": bomb,
    "cut.zip": lambda: bomb()[:5000],
    "cut.jsonl.gz": gzip.compress(ROW.encode() * 99)[:60],
    "old.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
    "word.docx": lambda: zipped(
        {"[Content_Types].xml": "<Types/>", "word/document.xml": "<w:p>Hi</w:p>"}
    ),
    "slides.pptx": lambda: zipped({"[Content_Types].xml": "<Types/>", "ppt/presentation.xml": ""}),
    "libre.odt": lambda: zipped(
        {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "<x/>"}
    ),
    "libre.ods": lambda: zipped(
        {"content.xml": "<x/>", "mimetype": "application/vnd.oasis.opendocument.spreadsheet"}
    ),
    "rich.rtf": rb"{\rtf1\ansi Once upon a time.\par}" * 9,
    "users.jsonl": "\n".join(json.dumps({"messages": CHAT[:1]}) for _ in range(9)).encode(),
    "numbers.json": b"[1, 2, 3]",
    "nested.json": b"[" * 100_000,
    "cut.json": f'[{ROW}, {{"messages": ['.encode(),
    "open.json": f"[{ROW}, {ROW}".encode(),
    "two.json": f"[{ROW}]\n[{ROW}]\n".encode(),
    "keys.jsonl": b'{"title": "One"}\n',
    "quotes.csv": b'question,answer\n"Hi,Hello!\nBye,"Good" bye\n' + b"Who,Me\n" * 5,
    "twice.csv": b"question,answer,answer\nHi,Hello!,Good day!\n",
    "commas.csv": b"text\nHello, world\nBread, please\n",
    "form.csv": b"Timestamp,Who are you?,How was it?,What else?\n"
    b"2026/11/28 2:02:11 PM EET,Ann,It was good.,No.\n",
    "three.csv": b"x,y,z\na,b,c\nd,e,f\n",
    "chat.txt": b"[03.05.21, 14:02:11] Ann: Are you there?\n[03.05.21, 14:03:00] Ben: Yes\n" * 3,
    "telegram.html": (
        b"<!DOCTYPE html>\n<html><head><title>Exported Data</title></head><body>Hi</body></html>"
    ),
    "message_1.html": (
        b'<html><body><div class="pam _3-95 _2ph- _a6-g noborder">Hi</div></body></html>'
    ),
    "general.html": (
        b'<!DOCTYPE html>\n<html lang="en"><body><div class="chatlog">Hi</div></body></html>'
    ),
    "general.txt": (
        f"{'=' * 62}\nGuild: Friends\nChannel: general\n{'=' * 62}\n\n" + DISCORD
    ).encode(),
    "general.csv": (
        b'AuthorID,Author,Date,Content,Attachments,Reactions\n"1","ann","2021-05-03","Hi","",""\n'
    ),
    "+491511234567.txt": (
        b"May 03, 2021  2:02:11 PM (Read by you after 2 minutes)\nAnn\nAre you there?\n\n"
    ),
    "de.po": b'# German\nmsgid ""\nmsgstr ""\n\n#: a.c:12\nmsgid "Open"\nmsgstr "Auf"\n',
    "film.ass": (
        b"[Script Info]\nTitle: A\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,A,,0,0,0,,Hi\n"
    ),
    "film.smi": b"<SAMI>\n<BODY>\n<SYNC Start=1000><P Class=KRCC>Hi\n</BODY></SAMI>\n",
    "film.sub": b"{25}{60}Are you there?\n{75}{110}Yes.|Here.\n",
    "song.lrc": b"[ar:Ann]\n[ti:A song]\n\n[00:01.00]Row, row\n[00:02.50]your boat\n",
    "greetings.yml": (
        b"categories:\n- greetings\nconversations:\n- - Hi\n  - Hello!\n- - Bye\n  - Goodbye!\n"
    ),
    "people.json": b'{"messages": [{"creator": {"name": "Ann"}, "text": "Hi"}]}',
    "silent.vtt": b"WEBVTT\n\nNOTE Nobody speaks.\n",
    "tweets.js": b'window.YTD.tweets.part0 = [\n  {"tweet" : {"full_text" : "Hello"}}\n]',
    "novel.mobi": b"A novel".ljust(60, b"\0") + b"BOOKMOBI" + bytes(99),
    "letter.fodt": b'<?xml version="1.0"?>\n<office:document xmlns:office="urn:x"/>',
    "texts.tar.gz": lambda: tarred("Once upon a time. " * 9),
    "plain.eml": MAIL.split("MIME")[0].encode() + b"\nHi\n",
    "mail.mbox": MAIL.encode(),
    "notes.ipynb": lambda: json.dumps(NOTEBOOK, indent=1).encode(),
    "one.txt": b"x",
}
USED: dict[str, Content] = {
    "long.txt": lambda: b"word " * 4_000_000,
    "row.txt": ROW.encode() + b"\n",
    "text.jsonl": b"This is no JSON, but words.\n" * 9,
    "utf16.csv": "question;answer\nHi;Grüße\n".encode("utf-16"),
    "latin-1.txt": "Grüße aus Köln. ".encode("latin-1") * 9,
    "bom.json": b"\xef\xbb\xbf" + f"[{ROW}]".encode(),
    "uneven.csv": b"question,answer\nHi,Hello!\nBye\nYou,Me,Them\n",
    "twice.jsonl": f'{ROW}\n{{"text": "a", "text": "b"}}\n'.encode(),
    "mixed.jsonl": f'{ROW}\n{{"text": "One."}}\n'.encode(),
    "markup.txt": b"<p>One</p>\n<b>Two</b>\n" * 9,
    "windows.txt": b"One line.\r\nAnother.\r\n" * 9,
    "words.docx": b"Once upon a time.\n" * 9,
    "old-mac.txt": b"One line.\rAnother.\r" * 9,
    "film.srt": SUBTITLES.replace("\n", "\r\n").encode(),
    "talk.vtt": TALK.encode(),
    "talk.sbv": b"0:00:01.000,0:00:02.500\nAre you[br]there?\n\n0:00:03.000,0:00:04.500\nYes.\n",
    "whole.srt": b"1\n00:00:01 --> 00:00:02\nAre you there?\n\n2\n00:00:03 --> 00:00:04\nYes.\n",
    "note.md": b"---\ntags:\n  - boats\ndate: 2024-01-02\n---\nWords.\n---\nMore.\n",
    "pandas.csv": b",frage_text,antwort_text\n0,Wer?,Ich.\n1,Wo?,Hier.\n",
    "title.csv": b"Questions\n\nquestion,answer\nWho?,I.\n",
    "sep.csv": b"\xef\xbb\xbfsep=;\r\nFrage;Antwort\r\nWer?;Ich.\r\n",
    "strings.json": b'["One text.", "Another."]',
    "tags.json": b'[{"question": "Hi", "answer": "Hello!", "tags": [{"id": 1}]}]',
    "base64.txt": base64.encodebytes(PNG * 9),
    "again.epub": lambda: zipped(
        {"a.css": "p {}", **members_of(epub({"1.xhtml": "<p>Once.</p>"}))}
    ),
    "letter.docx": lambda: docx(f"<w:p>{run('Once.')}</w:p>"),
    "part.html": b"<div>\n  <p>Once upon a time.</p>\n</div>\n",
    "upper.TXT.GZ": gzip.compress(b"Once upon a time. " * 9),
}


def made(name: str, content: Content) -> None:
    """Write a file into the working folder."""
    Path(name).write_bytes(content if isinstance(content, bytes) else content())


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(refused: Refused, name: str) -> None:
    made(name, REFUSED[name])
    words = ["--preset=tiny", "--set=vocab_size=262", "--out=runs/out"]
    assert refused(main, name, *words) == SAID[name]
    assert not Path("runs/out").exists()
    assert not [p for p in Path("runs").rglob("*") if p.is_file() and p.suffix != ".lock"]


@pytest.mark.parametrize("name", REFUSED)
def test_among_others_it_is_told_and_passed_by(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made(name, REFUSED[name])
    made("good.txt", b"Once upon a time there was a good file. " * 9)
    assert main(["look", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"{name}: " in told or f"{name}/" in told
    assert ": not used" in told or "skipped" in told or name == "one.txt"
    assert "good.txt: text, 1 text" in told


@pytest.mark.parametrize("name", USED)
def test_an_odd_file_that_can_be_used_is_told_of(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made(name, USED[name])
    code = main(["look", name])
    output = capsys.readouterr()
    told = [
        line.strip()
        for line in (output.out + output.err).splitlines()
        if line.startswith((f"{name}: ", "  skipped ", "note: ", "error: "))
    ]
    left_out = ("bytes are little", "be set aside", "text is too short")
    assert "; ".join(x for x in told if not any(part in x for part in left_out)) == SAID[name]
    assert code == (2 if "error: " in SAID[name] else 0)


def test_the_page_has_a_row_for_each() -> None:
    assert [*SAID] == [*REFUSED, *USED]


def test_a_loop_of_links_and_a_file_nobody_may_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made("good.txt", b"Once upon a time there was a good file. " * 9)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    assert main(["look", str(tmp_path)]) == 0
    assert "in all 1 document of" in capsys.readouterr().out
