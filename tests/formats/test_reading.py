"""Every kind of file that people have: what is read from it, what is skipped, what is refused."""

import csv
import gzip
import io
import json
from argparse import Namespace
from pathlib import Path
from time import process_time

import pytest
import zstandard
from texts import CHAT, documents, told, write, zipped

from gptcore.checks import UserError
from gptcore.text.chat_template import messages_of
from training.formats import packed
from training.formats.lines import values
from training.jobs.options import asked_of


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_are_read_by_the_names_of_their_columns(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    stream = io.StringIO(newline="")
    rows = [["id", "question", "answer"], [1, 'Say "hi",\nplease; now', 4], [2, "Grüße?", "é"]]
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    path = write(tmp_path / "table", stream.getvalue().encode(encoding))
    found = documents(path)
    assert [[m["content"] for m in chat] for chat in found] == [
        ['Say "hi",\nplease; now', "4"],
        ["Grüße?", "é"],
    ]
    assert "columns 'question' and 'answer' (not read: 'id')" in told(path)


@pytest.mark.parametrize("head", ["Nr.,Kundenfrage,Unsere Antwort", "Nr.,Frage?,Antwort!"])
def test_names_of_columns_may_end_in_a_mark(tmp_path: Path, head: str) -> None:
    """Spreadsheets have such names; a first row of sentences has none."""
    path = tmp_path / "faq.csv"
    rows = [f"{i},What is {i} and {i}?,It is {2 * i} in all." for i in range(5)]
    path.write_text("\n".join([head, *rows]))
    assert len(documents(path)) == 5
    question, answer = head.split(",")[1:]
    assert f"{question!r} and {answer!r}" in told(path)


def test_a_column_that_the_user_names_makes_the_first_row_one_of_names(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text("What do they ask?,What do we say?\nWho are you?,A shop.\n")
    columns = ("What do they ask?", "What do we say?")
    assert len(documents(path, columns=columns)) == 1


def test_a_column_with_a_comma_in_its_name_is_named_in_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "form.csv", 'when,"Good, or bad?"\n2026-11-28,It is good.\n')
    with pytest.raises(UserError, match=r"""in quotes: --columns '"A, b"'$"""):
        documents(path, columns=asked_of(Namespace(me=None, columns="Good, or bad?")).columns)
    with pytest.raises(UserError, match=r"--columns 'Good,\\nor': put a name with a line break"):
        asked_of(Namespace(me=None, columns="Good,\nor"))
    asked = asked_of(Namespace(me=None, columns='"Good, or bad?"'))
    assert documents(path, columns=asked.columns) == ["It is good."]


def test_of_many_columns_those_with_the_words_of_a_pair_in_their_names_are_taken(
    tmp_path: Path,
) -> None:
    head = "Nr;Customer question;Our answer;Category;Handled by\n"
    rows = "1;Is it new?;It is.;Lamps;Ann\n2;Is it old?;It is not.;Books;Ben\n"
    path = write(tmp_path / "shop.csv", head + rows)
    assert "guessed: questions and answers in 'Customer question' and 'Our answer'" in told(path)
    two = head.replace("Category", "Second question")
    with pytest.raises(UserError, match="none is known"):
        told(write(tmp_path / "two.csv", two + rows))


def test_unknown_columns_are_guessed_and_said_or_named_by_the_user(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "nr,Wer fragt,Und dann\n1,Hi,Hello!\n2,Bye now,Goodbye!\n")
    assert documents(path)[0] == CHAT
    assert "guessed: questions and answers in 'Wer fragt' and 'Und dann'" in told(path)
    assert documents(path, columns=("Und dann",)) == ["Hello!", "Goodbye!"]
    with pytest.raises(UserError, match="it has no column 'Frage': its columns are 'nr', "):
        documents(path, columns=("Frage",))
    with pytest.raises(UserError, match=r"between two names: --columns 'Wer fragt,Und dann'$"):
        documents(path, columns=("Wer fragt;Und dann",))
    more = write(tmp_path / "b.csv", "x,y,z\na,b,c\nd,e,f\n")
    with pytest.raises(
        UserError, match=r"are 'x', 'y', 'z', and .* name in --columns the question's"
    ):
        documents(more)
    many = write(
        tmp_path / "c.csv", ",".join(f"of {i}" for i in range(300)) + "\n" + "a," * 299 + "a"
    )
    with pytest.raises(UserError, match=r"'of 11', and 288 more, and none is known"):
        documents(many)


@pytest.mark.parametrize(
    ("columns", "guessed"),
    [
        (
            "id,status,ticket_text,kind|{i},open,Where is {i}?,{k}",
            "guessed: a text in each cell of column 'ticket_text' (name others",
        ),
        ("v1,v2|{k},Call me at {i}", "cell of column 'v2' (name others"),
        ("day,symbol,note|Jan {i} 2021,{k},We sold {i}", "cell of column 'note' (name others"),
        ("frage_text,antwort_text|Is it {i}?,{k}", "answers in 'frage_text' and 'antwort_text'"),
        ("name,mail,note|Ann,a{i}@b.org,We sold {i}", "cell of column 'note' (name others"),
        ("mail,status|a{i}@b.org,{k}", None),
        ("link|https://b.org/{i}", None),
        ("item,code|part-{i},SKU{i}", None),
        ("width,species|{i},{k}", None),
        ("island,sex|{k},{k}", None),
    ],
)
def test_a_column_of_kinds_is_no_column_of_texts(
    tmp_path: Path, columns: str, guessed: str | None
) -> None:
    head, row = columns.split("|")
    rows = [row.format(i=i, k="ham" if i % 3 else "spam") for i in range(20)]
    path = write(tmp_path / "a.csv", "\n".join([head, *rows]))
    if guessed:
        assert guessed in told(path)
    else:
        with pytest.raises(UserError, match=r"none is known: name in --columns"):
            told(path)


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    table = "Category,Answer,Question,system\nfood,Salt,What is it?,Be kind.\n"
    path = write(tmp_path / "a.csv", table)
    assert "columns 'Question', 'Answer', 'system' (not read: 'Category')" in told(path)
    [messages] = documents(path)
    assert [message["content"] for message in messages] == ["Be kind.", "What is it?", "Salt"]
    rated = write(tmp_path / "b.csv", "prompt,completion,label,history,weight\nHi,Hello!,true,,2\n")
    assert "'prompt', 'completion', 'label', 'history' (not read: 'weight')" in told(rated)
    mood = write(tmp_path / "c.csv", "text,label\nWhat a day!,glad\n")
    assert "CSV, column 'text' (not read: 'label'), 1 text, " in told(mood)
    asked = told(path, columns=("Answer",))
    assert "CSV, a text in each cell of column 'Answer' (not read: 'Category', " in asked


def test_a_table_without_names_has_numbered_columns_and_its_quotes_are_words(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "pairs.tsv", 'Hi.\tHello!\n"No," he said.\t"Oh."\n')
    assert documents(path, columns=("column 1", "column 2"))[0][1]["content"] == "Hello!"
    assert documents(path, columns=("column 1",)) == ["Hi.", '"No," he said.']
    assert "guessed: questions and answers in 'column 1' and 'column 2'" in told(path)


def test_tabs_separate_the_columns_of_a_tsv_whatever_is_in_them(tmp_path: Path) -> None:
    rows = "Hello, my friend, how are you?\tFine.\nAnd you, too, my dear, I hope?\tYes.\n"
    path = write(tmp_path / "a.tsv", "question, please\tanswer\n" + rows)
    asked, answer = documents(path, columns=("question, please", "answer"))[0]
    assert (asked["content"], answer["content"]) == ("Hello, my friend, how are you?", "Fine.")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_rows_of_json_may_follow_one_another_without_an_array(
    tmp_path: Path, name: str, indent: int | None
) -> None:
    """As jq writes them; the first may be longer than what tells the kind of a file."""
    long = [CHAT[0], {"role": "assistant", "content": "Hello! " * 20_000}]
    rows = [json.dumps({"messages": chat}, indent=indent) for chat in (long, CHAT)]
    assert documents(write(tmp_path / name, "\n".join(rows))) == [long, CHAT]


def test_one_long_value_makes_those_after_it_no_slower() -> None:
    """It took 33 s where each value was followed by a copy of the rest."""
    stream = io.StringIO(json.dumps(["x" * 9_000_000, *map(str, range(100_000))]))
    began = process_time()
    assert [*values(stream)][-1] == (100_001, "99999") and process_time() - began < 10


@pytest.mark.parametrize("page", ["page.HTML", "page.txt"])
def test_an_archive_of_saved_pages_is_read_without_their_scripts(tmp_path: Path, page: str) -> None:
    code = {"./a.js": b"let a = 1;", "b/STYLE.CSS": b"p { color: red }"}
    words = b"<html><body><p>Words of a page.</p></body></html>"
    path = write(tmp_path / "site.zip", zipped({page: words, **code}))
    assert len(documents(path)) == (1 if page == "page.HTML" else 3)


def in_window(data: bytes) -> bytes:
    """Return what zstd --long=31 makes of a stream."""
    long = zstandard.ZstdCompressionParameters.from_level(3, window_log=31)
    packer = zstandard.ZstdCompressor(compression_params=long).compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("name", ["a.gz", "a.zst", "a.zip", "a", "a.zip.zst", "a.long", "a.hidden"])
def test_packed_files_are_read_whatever_they_are_called(tmp_path: Path, name: str) -> None:
    row = json.dumps({"messages": CHAT}).encode() + b"\n"
    data = {
        "a.gz": gzip.compress(row),
        "a.zst": zstandard.compress(row),
        "a.zip": zipped(
            {"a.jsonl": row, "b.gz": gzip.compress(row), "c.png": b"\x89PNG\r\n\x1a\n\0\xff"}
        ),
        "a": zipped({"inner.zip": zipped({"a.jsonl": zstandard.compress(row)})}),
        "a.zip.zst": zstandard.compress(zipped({"a.jsonl": row})),
        "a.long": in_window(row),
        "a.hidden": zipped({"a.jsonl": row, ".git.x": row, "b/.git/hooks/c": row}),
    }
    path = write(tmp_path / name, data[name])
    assert documents(path) == [CHAT] * (2 if name == "a.zip" else 1)
    if name == "a.zip":
        assert "a.zip/c.png: not used: it is a PNG picture" in told(path)
        of_a_mac = zipped({"KKche.jsonl": row}).replace(b"KK", "ü".encode())  # not said to be UTF-8
        assert "a.zip/üche.jsonl: " in told(write(path, of_a_mac))


def test_a_zst_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    text = "".join(f"Line {i} of {i * i}.\n" for i in range(99_999)).encode()
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    frames = zstandard.compress(b"First of all.\n") + packed
    assert "".join(documents(write(tmp_path / "two.txt.zst", frames))).encode().endswith(text)
    for cut in (frames[: len(frames) // 2], frames[:-1], frames + b"\x28\xb5\x2f\xfd\0"):
        with pytest.raises(UserError, match="cut before its end: fetch or pack it again"):
            documents(write(tmp_path / "cut.txt.zst", cut))
    for at in (len(packed) // 2, len(packed) - 1):
        flipped = packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]
        with pytest.raises(UserError, match=r"damaged archive \(zstd .*: fetch or pack it"):
            documents(write(tmp_path / "flipped.txt.zst", flipped))


def test_an_endless_stream_and_endless_nesting_are_refused(tmp_path: Path) -> None:
    endless = gzip.compress(b"PK\x03\x04" + b"a" * 60_000_000)
    with pytest.raises(UserError, match=r"endless.zip.gz: it unpacks from .* as no text does"):
        documents(write(tmp_path / "endless.zip.gz", endless))
    data = b"text"
    for _ in range(5):
        data = gzip.compress(data)
    with pytest.raises(UserError, match="it is packed more than 3 times"):
        documents(write(tmp_path / "onion.gz", data))


def test_a_member_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    inner = zipped({"a.txt": b"c", "b.zip": b"PK\x03\x04", "locked.txt": b"d"})
    at = inner.rindex(b"PK\x01\x02") + 8  # the last member's flags in the directory
    inner = inner[:at] + b"\1" + inner[at + 1 :]
    letter = zipped({"[Content_Types].xml": b"<?xml?>"})
    path = write(tmp_path / "all.zip", zipped({"a.txt": b"a", "b.docx": letter, "c.zip": inner}))
    assert documents(path) == ["a", "c"]
    said = told(path)
    assert "all.zip/b.docx: not used" in said
    assert "it is an Office document" in said
    assert "it is a damaged archive" in said
    assert "it is packed with a password" in said


def test_a_large_archive_takes_no_longer_for_each_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "many.zip", zipped({f"{i}.txt": b"text" for i in range(200)}))
    opened = []
    real = packed.open_zip
    monkeypatch.setattr(packed, "open_zip", lambda stream: opened.append(1) or real(stream))
    assert len(documents(path)) == 200
    assert len(opened) == 1


def test_a_pattern_names_files_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one")
    write(tmp_path / "b.txt", "two")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert documents(tmp_path / "*.txt") == ["one", "two"]
    (tmp_path / "inside").mkdir()
    write(tmp_path / "inside" / "c.txt", "three")
    assert documents(tmp_path / "*") == documents(tmp_path / "**") == ["one", "two", "three"]
    (tmp_path / "inside" / "c.txt").unlink()
    assert documents(tmp_path) == ["one", "two"]
    with pytest.raises(UserError, match="no such file or folder"):
        documents(tmp_path / "*.pdf")


KAKAOTALK_OF_A_MAC = """\
Date,User,Message
2021-05-03 14:02:11,"Ann Lee","Are you
there?"
2021-05-03 14:03:00,"Ben","사진"
2021-05-03 14:03:30,"Ben","Yes: here"
2021-05-04 09:00:00,"Ben","Morning!"
2021-05-04 09:01:00,"Ann Lee","Morning."
2021-05-04 09:01:30,"Ben","<Media omitted>"
2021-05-04 09:02:00,"Ben","Coffee?"
"""


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_table_of_times_writers_and_messages_is_a_chat(tmp_path: Path, is_reversed: bool) -> None:
    head, *rows = csv.reader(KAKAOTALK_OF_A_MAC.splitlines(keepends=True))
    path = tmp_path / "chat.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        csv.writer(stream).writerows([head, *(rows[::-1] if is_reversed else rows)])
    with pytest.raises(UserError, match=r"a chat in a table of Ben .*; .*--columns 'Message'"):
        documents(path)
    assert documents(path, me=("Ben",)) == [
        messages_of(["Are you\nthere?", "Yes: here"]),
        messages_of(["Morning.", "Coffee?"]),
    ]
    assert len(documents(path, columns=("Message",))) == 7


def test_letters_of_many_writers_are_no_chat_and_their_names_no_questions(tmp_path: Path) -> None:
    rows = "".join(f"2021-05-{day:02},Customer {day},It is day {day}.\n" for day in range(1, 9))
    path = write(tmp_path / "letters.csv", "date,user,message\n" + rows)
    assert documents(path)[0] == "It is day 1."


def test_a_title_above_the_names_of_columns_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "faq.csv", "Our shop,,\nQuestion,Answer,Since\nHi,Hello!,2020\n")
    assert documents(path) == [CHAT]
    assert "skipped 1: it is a title above the names of the columns (first: row 1)" in told(path)


@pytest.mark.parametrize("title", ["Our shop's FAQ", "Our shop's FAQ;", "Our shop's FAQ;\n;"])
def test_a_title_above_two_columns_is_skipped(tmp_path: Path, title: str) -> None:
    """Excel gives every row as many cells as the longest has."""
    path = write(tmp_path / "faq.csv", f"{title}\nQuestion;Answer\nHi;Hello!\n")
    assert documents(path) == [CHAT]
    assert "it is a title above the names of the columns (first: row 1)" in told(path)


@pytest.mark.parametrize("table", [",Said\n0,Hi!\n1,Hello!\n", "Said,\nHi!,\nHello!,\n"])
def test_the_only_name_of_two_columns_is_no_title(tmp_path: Path, table: str) -> None:
    path = write(tmp_path / "said.csv", table)
    assert documents(path) == ["Hi!", "Hello!"]
    assert "column 'Said'" in told(path)
