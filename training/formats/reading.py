"""Files of any kind to documents, with what kind each file is and what is skipped in it.

>>> for found in read_file(file, Asked()):                           # doctest: +SKIP
...     print(found)
Kind(name='JSON lines')
Item(document=[{'role': 'user', 'content': 'Hi'}, ...], source='')
Skip(where='line 5', reason='it is not JSON')
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TextIO

from gptcore.checks import UserError
from training.formats.chats.assistants import EXPORTED
from training.formats.chats.messengers import read_messenger
from training.formats.chats.transcripts import read_chat
from training.formats.documents.books import read_epub, read_html, read_word
from training.formats.documents.pdf import read_pdf
from training.formats.documents.questions import documents_in, questions_in
from training.formats.documents.subtitles import read_subtitles
from training.formats.encoding import HEAD, note
from training.formats.found import Asked, Found, Item, Kind, NoText, Skip, Unreadable
from training.formats.kinds import kind_of
from training.formats.lines import (
    characters,
    numbered_lines,
    open_text,
    parse_row,
    text_encoding,
    values,
    whole,
)
from training.formats.packed import DAMAGED, SHEETS, WORDS, open_zip, seekable, unpacked
from training.formats.places import File
from training.formats.rows import items_of
from training.formats.tables.columns import known, listed
from training.formats.tables.readers import read_excel, read_parquet, read_table
from training.formats.texts import cut_up

# What Obsidian, Jekyll and others write above the words: lines of "key: value", lists and comments.
# A rule of Markdown has an empty line above it, and between two of them stand words.
FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?!\n)(?:\w[\w -]*:.*\n|(?!---)[ \t#-].*\n|\n)*(?<!\n\n)---[ \t]*\n"
)
# What Obsidian shows nobody, %% a comment %% in a line or between two lines, or shows as a picture;
# not in code, which is found first and stays.
UNSHOWN = re.compile(
    r"^(?P<code>(?P<fence>```+|~~~+)(?s:.*?)(?:^(?P=fence)|\Z))|"
    r"^%%[ \t]*\n(?s:.*?)\n%%[ \t]*$|(?<!\S)%%(?:(?!%%).)+%%(?!\S)|!\[\[[^\[\]\n]*\]\]",
    re.MULTILINE,
)
# Names of files that hold more than text; a text with such a name is read, and that is said.
OTHERS = (".doc", ".docx", ".epub", ".odt", ".ods", ".pdf", ".pptx", ".rtf", ".xls", ".xlsx")


def read_files(files: Iterable[File], asked: Asked, depth: int = 0) -> Iterator[tuple[File, Found]]:
    """Yield each file, unpacked, with its documents, which are to be read before the next file.

    A file that the user named and that cannot be read raises UserError with its name; one that
    was found in a folder or an archive is a Skip. `depth` says in how many archives they are.
    """
    for packed in files:
        try:
            for file in unpacked(packed, depth):
                if file is packed:
                    yield file, guarded(file, asked)
                else:
                    yield from read_files([file], asked, depth + 1)
        except (Unreadable, OSError, *DAMAGED) as error:
            yield packed, failed(packed, error)


def guarded(file: File, asked: Asked) -> Found:
    found = None
    try:
        for found in read_file(file, asked):
            yield found
    except (Unreadable, OSError, UnicodeDecodeError, *DAMAGED) as error:
        yield from failed(file, error, isinstance(found, Item | Skip))


def failed(file: File, error: Exception, is_begun: bool = False) -> Found:
    """Yield a Skip of a whole file, or of the rest of it. Raises UserError if the user named it."""
    if isinstance(error, Unreadable):
        reason = str(error)
    elif isinstance(error, UnicodeDecodeError):
        if error.encoding == "utf-8":
            reason = f"line {undecodable_line(file)} is not UTF-8 text"
        else:
            reason = f"it begins as {text_encoding(file)} and goes on as something else"
        reason += ": save it as UTF-8, in Excel as CSV UTF-8"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    else:
        reason = f"it is a damaged archive ({error}): fetch or pack it again"
    if file.is_named and isinstance(error, NoText):
        raise NoText(f"{file.name}: {reason}: leave it out") from None
    if file.is_named:
        raise UserError(f"{file.name}: {reason}") from None
    yield Skip("", f"{reason} (the rest is not read)" if is_begun else reason)


def undecodable_line(file: File) -> int:
    """Return the number of the first line that is not UTF-8, from 1."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with file.open() as stream:
        while part := stream.read(HEAD):
            try:
                line += decoder.decode(part).count("\n")
            except UnicodeDecodeError as error:
                return line + error.object[: error.start].count(b"\n")
    return line  # the last character is cut


def read_file(file: File, asked: Asked) -> Found:
    """Yield what a file is, its documents and what is skipped. Raises Unreadable."""
    with file.open() as stream:
        head = stream.read(HEAD)
    kind = kind_of(head, file.inner_name)
    found = READERS[kind](file, asked)
    if kind not in ENCODED_INSIDE and (said := note(text_encoding(file))):
        found = (replace(f, name=f"{f.name}, {said}") if isinstance(f, Kind) else f for f in found)
    yield from found


def read_text(file: File, asked: Asked) -> Found:
    with open_text(file) as stream:
        parts = characters(stream)
        first, kind = next(parts, ""), "text"
        is_markdown = file.inner_name.endswith((".md", ".markdown"))
        if is_markdown:
            words = FRONT_MATTER.sub("", first)
            kind = "Markdown" if words == first else "Markdown without its front matter"
            first = words
        elif file.inner_name.endswith(OTHERS):
            kind = "text, though its name says something else"
        parts = chain([first], parts)
        if is_markdown:
            parts = (UNSHOWN.sub(lambda found: found["code"] or "", part) for part in parts)
        if questions_in(first):
            yield from documents_in(kind, whole(parts, "questions and answers"), asked)
        else:
            yield Kind(kind, is_cut=True)
            yield from cut_up(parts, asked)


def read_json_lines(file: File, asked: Asked) -> Found:
    with open_text(file) as stream:
        lines = ((number, line) for number, line in numbered_lines(stream) if line.strip())
        rows = ((f"line {number}", value_in(line)) for number, line in lines)
        yield from items_of_rows("JSON lines", rows, asked)


def items_of_rows(kind: str, rows: Iterator[tuple[str, Any]], asked: Asked) -> Found:
    """Yield the kind, with the keys of the first row that are not read, and the rows' documents."""
    first = next(rows, None)
    keys = [*map(str, first[1])] if first and isinstance(first[1], dict) else []
    used = [*asked.columns] or known(keys)
    unread = [key for key in keys if used and key not in (*used, "source")]
    yield Kind(f"{kind} (not read: {listed(unread)})" if unread else kind)
    for where, row in chain([first] if first else [], rows):
        yield from items_of(row, where, asked)


def value_in(line: str) -> Any:
    """Return a line's value, or in its place why it is none."""
    try:
        return parse_row(line)
    except Unreadable as error:
        return error


def read_json(file: File, asked: Asked) -> Found:
    """Yield the rows of an array, of an object's only list of objects, or of one object."""
    with open_text(file) as stream:
        yield from items_of_rows("JSON", numbered_rows(stream), asked)


def numbered_rows(stream: TextIO) -> Iterator[tuple[str, Any]]:
    for number, value in values(stream):
        rows = rows_within(value)
        for inner, row in enumerate(rows, 1):
            yield f"value {inner if len(rows) > 1 else number}", row


def rows_within(value: Any) -> list[Any]:
    """Return the rows of an object such as {"version": 1, "data": [...]}, or the value itself.

    A row that is known is one, though it has a list of objects beside its text; a string is a text.
    """
    if isinstance(value, str):
        return [{"text": value}]
    talks = value.get("conversations") if isinstance(value, dict) else None
    if isinstance(talks, list) and any(isinstance(t, dict) and "responses" in t for t in talks):
        return talks  # Grok's
    if not isinstance(value, dict) or {*EXPORTED} & {*value} or known([*value]):
        return [value]
    if "nbformat" in value:
        raise Unreadable("it is a Jupyter notebook: export it as Markdown")
    lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    return lists[0] if len(lists) == 1 else [value]


def read_zipped(file: File, asked: Asked) -> Found:
    """Yield the documents of an archive that is a document itself."""
    with seekable(file) as stream, open_zip(stream) as archive:
        names = archive.namelist()
    reader = read_epub
    if SHEETS in names:
        reader = read_excel
    elif any(map(WORDS.fullmatch, names)):
        reader = read_word
    yield from reader(file, asked)


READERS: dict[str, Callable[[File, Asked], Found]] = {
    "text": read_text,
    "jsonl": read_json_lines,
    "json": read_json,
    "table": read_table,
    "parquet": read_parquet,
    "html": read_html,
    "subtitles": read_subtitles,
    "zipped": read_zipped,
    "pdf": read_pdf,
    "chat": read_chat,
    "messenger": read_messenger,
}
ENCODED_INSIDE = ("html", "zipped", "parquet", "pdf")  # what says its encoding, or has one alone
