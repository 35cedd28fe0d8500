"""Fifty wrong or odd files: one clear line or a counted skip, and nothing left half made."""

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
from test_books import epub, pdf
from test_formats_read import CHAT

from training.__main__ import main

ROW = json.dumps({"messages": CHAT})
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256))


def locked_pdf() -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("Secret"))))
    writer.encrypt("password", algorithm="RC4-128")
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()


def zipped(members: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
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
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"a" * 60_000_000)
    return stream.getvalue()


# A file by its name: its bytes, and what the one line of the refusal holds.
REFUSED: dict[str, tuple[Callable[[], bytes] | bytes, str]] = {
    "empty.txt": (b"", "it is empty"),
    "blank.txt": (b" \n\t\n" * 99, "it holds nothing but white space"),
    "nuls.txt": (b"word\0" * 99, "it holds NUL characters: it is binary"),
    "picture.txt": (PNG, "it is a PNG picture"),
    "photo.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF\0" + PNG, "it is a JPEG picture"),
    "program": (b"\x7fELF\x02\x01\x01" + bytes(99), "it is a program"),
    "damaged.txt": ("Grüße aus Köln. ".encode() * 9 + b"\xff", "line 1 is not UTF-8 text"),
    "locked.pdf": (locked_pdf, "password"),
    "scan.pdf": (lambda: pdf(""), "without text: a scan needs OCR"),
    "cut.pdf": (pdf("Once upon a time.")[:200], "it is a damaged PDF"),
    "glued.pdf": (
        pdf("Thewordsofalinestandtogether, assomeprogramswritethespacelesspages. " * 2),
        "it is a PDF of 1 page whose words run together: save it as text from a viewer, or with "
        "poppler's pdftotext",
    ),
    "bomb.zip": (bomb, "bomb.zip/a.txt: it unpacks from"),
    "cut.zip": (lambda: bomb()[:5000], "it is a damaged archive"),
    "cut.jsonl.gz": (
        gzip.compress(ROW.encode() * 99)[:60],
        "it is a damaged archive .*: fetch or pack it again",
    ),
    "old.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "an old Office document"),
    "word.docx": (
        lambda: zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": "<w:p>Hi</w:p>"}),
        "it is an Office document: save it as text",
    ),
    "libre.odt": (
        lambda: zipped(
            {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "<x/>"}
        ),
        "it is an Office document: save it as text",
    ),
    "libre.ods": (
        lambda: zipped(
            {"content.xml": "<x/>", "mimetype": "application/vnd.oasis.opendocument.spreadsheet"}
        ),
        "it is an Office document: save it as text",
    ),
    "rich.rtf": (rb"{\rtf1\ansi Once upon a time.\par}" * 9, "it is an RTF document"),
    "users.jsonl": (
        "\n".join(json.dumps({"messages": CHAT[:1]}) for _ in range(9)).encode(),
        "no document was found: .*users.jsonl, line 1: .*no reply of an assistant",
    ),
    "numbers.json": (b"[1, 2, 3]", "no document was found: .*a number, not an object"),
    "nested.json": (b"[" * 100_000, "nested too deeply"),
    "cut.json": (
        f'[{ROW}, {{"messages": ['.encode(),
        r"no document|cut\.json: value 2 is not JSON \(Expecting value\)$",
    ),
    "open.json": (f"[{ROW}, {ROW}".encode(), "no document|the array has no ] at its end"),
    "two.json": (
        f"[{ROW}]\n[{ROW}]\n".encode(),
        "something follows the array's ]: write it into the array",
    ),
    "keys.jsonl": (b'{"title": "One"}\n', "no document was found: .*no known key"),
    "quotes.csv": (
        b'question,answer\n"Hi,Hello!\nBye,"Good" bye\n' + b"Who,Me\n" * 5,
        "line 2: its quotes do not match .*: write each quote within a cell twice",
    ),
    "twice.csv": (
        b"question,answer,answer\nHi,Hello!,Good day!\n",
        "it has the column 'answer' twice, and one would be lost: rename one",
    ),
    "commas.csv": (b"text\nHello, world\nBread, please\n", "put cells with a comma in quotes"),
    "form.csv": (
        b"Timestamp,Who are you?,How was it?,What else?\n"
        b"2026/11/28 2:02:11 PM EET,Ann,It was good.,No.\n",
        "its columns are 'Timestamp', 'Who are you[?]', 'How was it[?]', 'What else[?]', and none",
    ),
    "three.csv": (b"x,y,z\na,b,c\nd,e,f\n", "which one holds texts, with --columns"),
    "chat.txt": (
        b"[03.05.21, 14:02:11] Ann: Are you there?\n[03.05.21, 14:03:00] Ben: Yes\n" * 3,
        '--me "Ann" or --me "Ben"; if it is no chat: rename it to .log',
    ),
    "telegram.html": (
        b"<!DOCTYPE html>\n<html><head><title>Exported Data</title></head><body>Hi</body></html>",
        "it is an export of Telegram as HTML: export it as JSON",
    ),
    "message_1.html": (
        b'<html><body><div class="pam _3-95 _2ph- _a6-g noborder">Hi</div></body></html>',
        "it is an export of Facebook or Instagram as HTML",
    ),
    "general.html": (
        b'<!DOCTYPE html>\n<html lang="en"><body><div class="chatlog">Hi</div></body></html>',
        "it is an export of Discord as HTML",
    ),
    "general.txt": (
        (f"{'=' * 62}\nGuild: Friends\nChannel: general\n{'=' * 62}\n\n" + DISCORD).encode(),
        "it is a Discord channel as text: export it as JSON",
    ),
    "general.csv": (
        b'AuthorID,Author,Date,Content,Attachments,Reactions\n"1","ann","2021-05-03","Hi","",""\n',
        "it is a Discord channel as a table: export it as JSON",
    ),
    "+491511234567.txt": (
        b"May 03, 2021  2:02:11 PM (Read by you after 2 minutes)\nAnn\nAre you there?\n\n",
        "it is a chat of iMessage: make a table of it",
    ),
    "de.po": (
        b'# German\nmsgid ""\nmsgstr ""\n\n#: a.c:12\nmsgid "Open"\nmsgstr "Auf"\n',
        "it is a catalogue of translations: make a table of it",
    ),
    "film.ass": (
        b"[Script Info]\nTitle: A\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,A,,0,0,0,,Hi\n",
        "it is subtitles of SubStation Alpha: save them as .srt",
    ),
    "film.smi": (
        b"<SAMI>\n<BODY>\n<SYNC Start=1000><P Class=KRCC>Hi\n</BODY></SAMI>\n",
        "it is subtitles of SAMI: save them as .srt",
    ),
    "film.sub": (
        b"{25}{60}Are you there?\n{75}{110}Yes.|Here.\n",
        "it is subtitles of MicroDVD: save them as .srt",
    ),
    "song.lrc": (
        b"[ar:Ann]\n[ti:A song]\n\n[00:01.00]Row, row\n[00:02.50]your boat\n",
        "it is lyrics with times: save them as text without",
    ),
    "greetings.yml": (
        b"categories:\n- greetings\nconversations:\n- - Hi\n  - Hello!\n- - Bye\n  - Goodbye!\n",
        "it is a corpus of ChatterBot: make a table of it",
    ),
    "people.json": (
        b'{"messages": [{"creator": {"name": "Ann"}, "text": "Hi"}]}',
        "no document was found: .*who speaks.* make a table with the columns date, user and mess",
    ),
    "silent.vtt": (b"WEBVTT\n\nNOTE Nobody speaks.\n", "it is subtitles in which nobody speaks"),
    "tweets.js": (
        b'window.YTD.tweets.part0 = [\n  {"tweet" : {"full_text" : "Hello"}}\n]',
        "it is a part of Twitter's archive: make",
    ),
    "novel.mobi": (
        b"A novel".ljust(60, b"\0") + b"BOOKMOBI" + bytes(99),
        "it is a Kindle book: save",
    ),
    "letter.fodt": (
        b'<?xml version="1.0"?>\n<office:document xmlns:office="urn:x"/>',
        "it is XML: save its words as",
    ),
    "texts.tar.gz": (lambda: tarred("Once upon a time. " * 9), "it is a tar archive: unpack it"),
    "plain.eml": (MAIL.split("MIME")[0].encode() + b"\nHi\n", "it is mail or a web archive: save"),
    "mail.mbox": (MAIL.encode(), "it is mail or a web archive: save it as text"),
    "notes.ipynb": (
        lambda: json.dumps(NOTEBOOK, indent=1).encode(),
        "it is a Jupyter notebook: export it as Markdown",
    ),
    "one.txt": (b"x", "the text is too short: 1 bytes"),
}
# A file that can be used: its bytes, and what is told of it.
USED: dict[str, tuple[Callable[[], bytes] | bytes, str]] = {
    "long.txt": (lambda: b"word " * 4_000_000, "20,000,000 bytes"),
    "row.txt": (ROW.encode() + b"\n", "row.txt: JSON, 1 conversation"),
    "text.jsonl": (b"This is no JSON, but words.\n" * 9, "skipped 9: it is not JSON|text, 1 text"),
    "utf16.csv": (
        "question;answer\nHi;Grüße\n".encode("utf-16"),
        "CSV, columns 'question' and 'answ",
    ),
    "latin-1.txt": (
        "Grüße aus Köln. ".encode("latin-1") * 9,
        "text, read as Windows-1252 .if its letters look wrong, save it as UTF-8",
    ),
    "bom.json": (b"\xef\xbb\xbf" + f"[{ROW}]".encode(), "JSON, 1 conversation"),
    "uneven.csv": (b"question,answer\nHi,Hello!\nBye\nYou,Me,Them\n", "skipped [12]: "),
    "twice.jsonl": (
        f'{ROW}\n{{"text": "a", "text": "b"}}\n'.encode(),
        "skipped 1: .*the key 'text' twice",
    ),
    "mixed.jsonl": (f'{ROW}\n{{"text": "One."}}\n'.encode(), "1 text, 1 conversation"),
    "markup.txt": (b"<p>One</p>\n<b>Two</b>\n" * 9, "lines look like markup|HTML"),
    "windows.txt": (b"One line.\r\nAnother.\r\n" * 9, "text, 1 text"),
    "words.docx": (b"Once upon a time.\n" * 9, "text, though its name says something else, 1 te"),
    "old-mac.txt": (b"One line.\rAnother.\r" * 9, "text, 1 text, 171 bytes"),
    "film.srt": (
        SUBTITLES.replace("\n", "\r\n").encode(),
        "subtitles, without .*, 1 text, 28 bytes",
    ),
    "talk.vtt": (TALK.encode(), "subtitles, without .*, 1 text, 26 bytes"),
    "talk.sbv": (
        b"0:00:01.000,0:00:02.500\nAre you[br]there?\n\n0:00:03.000,0:00:04.500\nYes.\n",
        "subtitles, without .*, 1 text, 19 bytes",
    ),
    "whole.srt": (
        b"1\n00:00:01 --> 00:00:02\nAre you there?\n\n2\n00:00:03 --> 00:00:04\nYes.\n",
        "subtitles, without .*, 1 text, 19 bytes",
    ),
    "note.md": (
        b"---\ntags:\n  - boats\ndate: 2024-01-02\n---\nWords.\n---\nMore.\n",
        "Markdown without its front matter, 1 text, 17 bytes",
    ),
    "pandas.csv": (
        b",frage_text,antwort_text\n0,Wer?,Ich.\n1,Wo?,Hier.\n",
        "questions and answers in 'frage_text' and 'antwort_text'",
    ),
    "title.csv": (
        b"Questions\n\nquestion,answer\nWho?,I.\n",
        "CSV, columns 'question' and 'answer', 1 conversation, 7 bytes",
    ),
    "sep.csv": (
        b"\xef\xbb\xbfsep=;\r\nFrage;Antwort\r\nWer?;Ich.\r\n",
        "'Antwort', 1 conversation, 9",
    ),
    "strings.json": (b'["One text.", "Another."]', "JSON, 2 texts, 17 bytes"),
    "tags.json": (
        b'[{"question": "Hi", "answer": "Hello!", "tags": [{"id": 1}]}]',
        "JSON, 1 conversation, 9 bytes",
    ),
    "base64.txt": (base64.encodebytes(PNG * 9), "lines look like binary data"),
    "again.epub": (
        lambda: zipped({"a.css": "p {}", **members_of(epub({"1.xhtml": "<p>Once.</p>"}))}),
        "again.epub: EPUB, 1 text, 5 bytes",
    ),
    "part.html": (
        b"<div>\n  <p>Once upon a time.</p>\n</div>\n",
        "part.html: HTML, its .* 17 bytes",
    ),
    "upper.TXT.GZ": (gzip.compress(b"Once upon a time. " * 9), "text, 1 text"),
}


def made(folder: Path, name: str, content: Callable[[], bytes] | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content())
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    content, said = REFUSED[name]
    path = made(tmp_path, name, content)
    words = ["--preset=tiny", "--set=vocab_size=262", f"--out={tmp_path / 'runs' / 'out'}"]
    line = refused(main, path, *words)
    assert re.search(said, line), line
    assert (len(line) < 600 and name in line) or name == "one.txt"
    assert not (tmp_path / "runs" / "out").exists()
    left = [p for p in (tmp_path / "runs").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert not left


@pytest.mark.parametrize("name", REFUSED)
def test_among_others_it_is_a_counted_skip(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, name, REFUSED[name][0])
    made(tmp_path, "good.txt", b"Once upon a time there was a good file. " * 9)
    assert main(["look", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert (f"{name}: " in told or f"{name}/" in told) and ("skipped" in told or name == "one.txt")
    assert "good.txt: text, 1 text" in told


@pytest.mark.parametrize("name", USED)
def test_an_odd_file_that_can_be_used_is_told_of(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, said = USED[name]
    path = made(tmp_path, name, content)
    code = main(["look", str(path)])
    output = capsys.readouterr()
    assert re.search(said, output.out), output
    assert code == 0 or "no document was found" in output.err


def test_the_documents_say_what_is_said_of_each() -> None:
    text = (ROOT / "docs/odd-files.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE))
    assert [*rows] == [*REFUSED, *USED]
    for name, (_, said) in (REFUSED | USED).items():
        assert re.search(said, rows[name]), name


def test_a_loop_of_links_and_a_file_nobody_may_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "good.txt", b"Once upon a time there was a good file. " * 9)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    assert main(["look", str(tmp_path)]) == 0
    assert "in all 1 document of" in capsys.readouterr().out
