"""Files to documents: formats, cuts, streaming, refusals, and what is held out."""

import gzip
import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import CHAT, documents, write

from gptcore.checks import UserError
from gptcore.text.tokenizer import PATTERN
from training.data.corpus import Document, document_text, read_documents
from training.data.survey import survey
from training.formats.places import find_files
from training.formats.texts import READ_CHARACTERS, SEPARATOR, cut, documents_of

# Of tiktoken's cl100k_base, which finds line ends in white space as ours does.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def rows(*values: object) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def words(n_bytes: int) -> str:
    rng = random.Random(0)
    text = " ".join(str(rng.getrandbits(32)) for _ in range(n_bytes // 8))
    return text[:n_bytes]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_text_file_is_read_with_its_accents_and_line_ends(tmp_path: Path, name: str) -> None:
    text = "Grüße, 世界 🌍\n\n  indented\ttabbed \n"
    assert documents(write(tmp_path / name, text)) == [text]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_jsonl_file_gives_texts_and_conversations_line_by_line(tmp_path: Path, name: str) -> None:
    text = rows({"text": "One\ntwo", "id": 7}, {"messages": CHAT}) + "\n" + rows({"text": ""})
    assert documents(write(tmp_path / name, text)) == ["One\ntwo", CHAT]


def test_a_folder_gives_its_files_in_order_with_those_of_its_subfolders(
    tmp_path: Path,
) -> None:
    write(tmp_path / "b.txt", "second")
    write(tmp_path / "a" / "x.jsonl.gz", rows({"text": "first"}))
    write(tmp_path / "c.txt.gz", "third")
    write(tmp_path / ".git" / "config", "not this one")
    assert documents(tmp_path) == ["first", "second", "third"]
    assert documents(tmp_path / "c.txt.gz", tmp_path / "b.txt") == ["third", "second"]


def test_separators_end_documents_and_are_no_part_of_them(tmp_path: Path) -> None:
    text = f"one{SEPARATOR}\ntwo\n{SEPARATOR}{SEPARATOR}\n \n{SEPARATOR}three{SEPARATOR}"
    assert documents(write(tmp_path / "a.txt", text)) == ["one", "two\n", "three"]


def test_a_separator_is_found_wherever_the_file_is_read_in_parts(tmp_path: Path) -> None:
    first, last = "x" * 4078, "z" * 200_000  # pieces of 4096 end just before the part that is read
    for shift in range(-2, 25):
        middle = "y" * (READ_CHARACTERS - len(first + SEPARATOR) - shift)
        text = SEPARATOR.join([first, middle, "\n" + last])
        found = documents(write(tmp_path / "a.txt", text))
        assert found[0] == first and "".join(found[1:]) == middle + last
        assert {len(set(document)) for document in found} == {1}


def test_a_long_text_in_one_part_is_cut_as_fast_as_one_in_many() -> None:
    """Where each cut copies all that follows, that takes a hundred times as long."""
    text = words(10_000) * 6000
    started = time.process_time()
    found = list(documents_of([text], size=4096))
    assert "".join(found) == text and time.process_time() - started < 5


@pytest.mark.parametrize("space", [" ", "_", "é"])
def test_a_line_of_300_kilobytes_is_cut_and_nothing_is_lost(tmp_path: Path, space: str) -> None:
    text = words(300_000).replace(" ", space)
    found = documents(write(tmp_path / "a.txt", text))
    assert "".join(found) == text
    assert len(found) >= 50 and max(map(len, found)) <= 4096


@given(st.text("ab \n", max_size=200), st.integers(1, 50))
def test_cutting_keeps_every_character_and_the_size(text: str, size: int) -> None:
    pieces = cut_up(text, size)
    assert all(1 <= len(piece) <= size for piece in pieces)
    assert "".join(pieces) == text


def cut_up(text: str, size: int) -> list[str]:
    pieces, rest = [], text
    while rest:
        piece, rest = cut(rest, size)
        pieces.append(piece)
    return pieces


WORDS = st.text("aé世1!'\x1c", max_size=5).map(lambda word: word + ".")
SPACES = st.text(" \t\n", min_size=1, max_size=4)


@settings(max_examples=300)
@given(st.lists(st.tuples(WORDS, SPACES)), st.integers(20, 60))
def test_no_token_spans_a_cut_where_a_word_and_a_space_are_in_reach(
    parts: list[tuple[str, str]], size: int
) -> None:
    text = "".join(word + space for word, space in parts)
    for pattern in (PATTERN, CL100K):
        pieces = [p for document in cut_up(text, size) for p in regex.findall(pattern, document)]
        assert pieces == regex.findall(pattern, text)


def test_a_cut_is_after_a_paragraph_or_a_sentence_of_the_latter_half_or_else_a_line() -> None:
    assert cut("One. Two three. Four five six", 20)[0] == "One. Two three."
    assert cut('She said "no." Then she went.', 20)[0] == 'She said "no."'
    assert cut("A line.\nTwo.\n\nThree. Four", 20)[0] == "A line.\nTwo.\n\n"
    assert cut("Hi. A verse without\nend\nor stop", 25)[0] == "Hi. A verse without\nend\n"
    assert cut("Hi. One long line without end", 20)[0] == "Hi. One long line"


@pytest.mark.parametrize("size", range(10, 40))
def test_empty_lines_stay_with_the_line_before_them(size: int) -> None:
    text = "First.\n\n\nSecond\n \n\tThird\n\n\n"
    starts = [piece[0] for piece in cut_up(text, size)]
    assert not {"\n"} & set(starts), starts


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl"])
def test_a_large_file_is_streamed(tmp_path: Path, name: str) -> None:
    text = words(1_000_000) * 12
    if name == "a.jsonl":
        text = rows({"text": text[:4000]}) * 3000
    file = write(tmp_path / name, text)
    tracemalloc.start()
    try:
        found = read_documents(find_files([file]))
        assert isinstance(found, Iterator)
        assert len(next(found)) <= 4096
        at_first = tracemalloc.get_traced_memory()[1]
        assert sum(1 for _ in found) > 2000
        at_last = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert at_first < 2_000_000 and at_last < 3_000_000  # of 12 million


REFUSED = {  # docs/odd-files.md has others
    "missing.txt": (None, "no such file or folder"),
    "utf16.txt": ("two bytes a letter".encode("utf-16-le"), "is UTF-16 without a byte-order"),
    "late.txt": ("naïf ".encode() * 50_000 + b"\xff", "is not UTF-8 text"),
    "random.jsonl": (random.Random(1).randbytes(2000), "is binary, not text"),
    "flipped.txt.gz": (gzip.compress(b"text " * 99)[:-6] + b"\0\1\2\3\4\5", "archive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str) -> None:
    content, message = REFUSED[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as refusal:
        documents(tmp_path / name)
    assert name in str(refusal.value)


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no text: name files, or a folder"):
        documents(tmp_path)
    write(tmp_path / "picture.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    with pytest.raises(UserError, match=r"no document was found: .*picture.txt: it is a PNG pict"):
        documents(tmp_path)


@pytest.mark.parametrize("n", [1, 3, 1000, 10_000])
def test_a_survey_counts_and_holds_out_about_a_twentieth_but_one_of_a_small_text(n: int) -> None:
    corpus = [f"Document {i}: é" for i in range(n)]
    found = survey(lambda: corpus)
    held_out = sum(map(found.is_validation, corpus))
    assert found.n_documents == n and found.n_chats == 0
    assert found.n_bytes == sum(len(text.encode()) for text in corpus)
    assert held_out == 1 if found.n_bytes < 80_000 else n / 25 < held_out < n / 16
    if n > 3:
        assert survey(lambda: corpus, held_out=0.5).validation_limit == 2**63


def test_one_document_at_least_is_not_held_out() -> None:
    for i in range(300):  # of two large ones each is below the limit once in twenty times
        corpus = [f"{i} one " * 9000, f"{i} two " * 9000]
        found = survey(lambda corpus=corpus: corpus)
        assert sum(map(found.is_validation, corpus)) == 1


def test_the_held_out_part_of_a_large_corpus_is_limited() -> None:
    corpus = [f"{i} " * 1000 for i in range(4000)]
    found = survey(lambda: corpus)
    held_out = sum(len(document_text(d)) for d in corpus if found.is_validation(d))
    assert 400_000 < held_out < 600_000 < 0.04 * found.n_bytes


def test_equal_documents_are_on_the_same_side() -> None:
    corpus: list[Document] = [f"Document {i % 20}" for i in range(200)] + [CHAT] * 3
    found = survey(lambda: corpus)
    sides = {(str(document), found.is_validation(document)) for document in corpus}
    assert len(sides) == 21 and found.n_chats == 3
    assert {side for _, side in sides} == {True, False}


def test_the_hash_of_a_corpus_depends_on_its_documents_alone(tmp_path: Path) -> None:
    def digest(name: str, *values: object) -> str:
        files = [write(tmp_path / name, rows(*values))]
        return survey(lambda: read_documents(find_files(files))).sha256

    one, two = {"text": "one"}, {"messages": CHAT}
    assert digest("a.jsonl", one, two) == digest("b/c.jsonl.gz", one | {"id": 1}, two)
    others = [(two, one), (one,), (one, two, two), ({"text": "One"}, two), (one, {"text": "Hi"})]
    assert len({digest("a.jsonl", *values) for values in [(one, two), *others]}) == 6
