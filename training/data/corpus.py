"""Documents streamed from files of any size: .txt, .jsonl, .txt.gz and .jsonl.gz.

    >>> for document in read_documents([Path("book.txt")]):              # doctest: +SKIP
    ...     ids = document_ids(document, tokenizer)

A document is a text (str) or a conversation (list of messages). A .txt file is cut into
documents at `<|endoftext|>`, and a longer document at a line end every few thousand characters.
A cut at the end of a line or of a word splits no token.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TextIO

from gptcore.checks import UserError
from gptcore.text.chat_template import Message, check_messages, render
from gptcore.text.tokenizer import Tokenizer
from training.machine.progress import progress

Document = str | list[Message]
Corpus = Callable[[], Iterable[Document]]  # each call starts from the beginning

SEPARATOR = "<|endoftext|>"
SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
VALIDATION_SHARE = 0.05  # share of the documents held out for validation
MAX_VALIDATION_BYTES = 500_000  # a larger corpus holds out a smaller share
READ_CHARACTERS = 1 << 16  # characters read at a time
MAX_LINE = 1 << 24  # characters; more than a book has, and few enough for any memory

# Patterns of the text up to a place where a cut does not change the tokens: no piece of the
# patterns of gptcore.text.tokenizer and cl100k spans these places. White space that contains line
# ends is one piece up to its last line end; other white space begins a piece.
LINES = re.compile(r"(?s).*\n(?=[^\S\n]*\S)")
WORDS = re.compile(r"(?s).*\S(?=[ \t])")


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the given files, and the files with a known suffix in the given folders, in order.

    Raises UserError for a missing or empty file, and for a folder without such files.
    """
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES))
            if not found:
                raise UserError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"no such file or folder: {path}")
    for file in files:
        if file.stat().st_size == 0:
            raise UserError(f"{file} is empty: name a file with text in it")
    return files


def read_documents(files: list[Path]) -> Iterator[Document]:
    """Yield the documents of all files. Raises UserError naming an unreadable file and line."""
    return (document for document, _ in read_sourced(files))


def read_sourced(files: list[Path]) -> Iterator[tuple[Document, str]]:
    """Yield documents with their sources: the row's "source", or else the file's name.

    Raises UserError naming an unreadable file and line.
    """
    # Cut into at least about fifty documents, so that a small text can be split for validation.
    size = max(512, min(4096, sum(file.stat().st_size for file in files) // 50))
    for file in files:
        is_jsonl = file.name.removesuffix(".gz").endswith(".jsonl")
        try:
            if is_jsonl:
                yield from read_jsonl(file)
            else:
                yield from ((text, file.name) for text in read_text(file, size))
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is not UTF-8 text ({error.reason}): convert it") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{file} is a damaged gzip file: {error}") from None


def open_text(file: Path) -> TextIO:
    opener = gzip.open if file.name.endswith(".gz") else open
    return opener(file, "rt", encoding="utf-8-sig")


def read_text(file: Path, size: int) -> Iterator[str]:
    """Yield documents of at most `size` characters, cut at separators, line ends or word ends."""
    with open_text(file) as stream:
        rest = ""
        while chunk := stream.read(READ_CHARACTERS):
            if "\0" in chunk:
                raise UserError(f"{file} holds NUL characters: it is binary, not text")
            rest += chunk
            while len(rest) > size + len(SEPARATOR):
                document, rest = cut(rest, size)
                yield from [document] if document.strip() else []
        while rest:
            document, rest = cut(rest, size)
            yield from [document] if document.strip() else []


def cut(text: str, size: int) -> tuple[str, str]:
    """Return the first document of a text, and the rest of the text."""
    separator = text.find(SEPARATOR, 0, size + len(SEPARATOR))
    if separator >= 0:
        return text[:separator], text[separator + len(SEPARATOR) :].removeprefix("\n")
    if len(text) <= size:
        return text, ""
    window = text[: size + 1]  # one more character, so that the patterns see what follows the cut
    match = LINES.match(window) or WORDS.match(window)
    at = match.end() if match else size
    return text[:at], text[at:]


def read_jsonl(file: Path) -> Iterator[tuple[Document, str]]:
    """Yield the document and source of each line.

    A line is an object with "messages" or "text", and optionally "source"; other keys are ignored.
    """
    with open_text(file) as stream:
        for number, line in numbered_lines(stream, file):
            try:
                row = json.loads(line)
                document = row["messages"] if "messages" in row else row["text"]
                if not isinstance(document, list if "messages" in row else str):
                    raise UserError('"text" is not a string, or "messages" not a list')
                if isinstance(document, list):
                    check_messages(document)
                check_text(document_text(document))
            except (KeyError, TypeError):
                raise UserError(f'{file}, line {number}: it has no "messages" or "text"') from None
            except UserError as error:
                raise UserError(f"{file}, line {number}: {error}") from None
            except (ValueError, RecursionError) as error:
                found = getattr(error, "msg", error)  # the parser's own line would be another one
                raise UserError(f"{file}, line {number}: it is not JSON ({found})") from None
            if document:
                yield document, str(row.get("source", file.name))


def numbered_lines(stream: TextIO, file: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of all lines that are not blank.

    Raises UserError for a line of more than MAX_LINE characters.
    """
    for number in count(1):
        line = stream.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise UserError(
                f"{file}, line {number} is longer than {MAX_LINE:,} characters: write one document "
                f"on each line, and split this one"
            )
        if not line:
            return
        if line.strip():
            yield number, line


def check_text(text: str) -> None:
    """Raise UserError for half of a surrogate pair, which JSON can hold but UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("a character is only half a surrogate pair: correct the text") from None


def document_text(document: Document) -> str:
    """Return the text of a document on which a tokenizer is trained."""
    return "\n".join(texts_of(document))


def texts_of(document: Document) -> list[str]:
    """Return the texts that are encoded separately: a text itself, or a conversation's messages."""
    if isinstance(document, str):
        return [document]
    return [message["content"] for message in document]


def document_ids(document: Document, tokenizer: Tokenizer) -> list[int]:
    """Return a document's ids; a text begins with `<|endoftext|>`."""
    if isinstance(document, str):
        return [tokenizer.special["<|endoftext|>"], *tokenizer.encode(document)]
    return render(document, tokenizer)


@dataclass(frozen=True)
class Survey:
    """The result of a first pass over a corpus."""

    sha256: str  # of all document numbers
    n_documents: int
    n_bytes: int
    n_chats: int
    validation_limit: int  # documents with a lower document_number are held out

    def is_validation(self, document: Document) -> bool:
        """Return whether a document is held out; equal documents are always in the same split."""
        return document_number(document) < self.validation_limit


def survey(corpus: Corpus, held_out: float | None = None) -> Survey:
    """Hash and count a corpus, and choose which documents are held out for validation.

    `held_out`: their share; by default VALIDATION_SHARE, less for a large corpus.
    """
    digest, n_documents, n_bytes, n_chats, smallest = hashlib.sha256(), 0, 0, 0, 2**64
    for document in progress(corpus(), "reading", unit=" documents"):
        number = document_number(document)
        digest.update(number.to_bytes(8))
        n_documents += 1
        n_chats += not isinstance(document, str)
        n_bytes += len(document_text(document).encode("utf-8"))
        smallest = min(smallest, number)
    share = held_out or min(VALIDATION_SHARE, MAX_VALIDATION_BYTES / max(n_bytes, 1))
    limit = max(int(share * 2**64), smallest + 1)  # at least one document
    return Survey(digest.hexdigest(), n_documents, n_bytes, n_chats, limit)


def document_number(document: Document) -> int:
    """Return a 64-bit hash of the document."""
    text = document if isinstance(document, str) else json.dumps(document)
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8)
    return int.from_bytes(digest.digest())
