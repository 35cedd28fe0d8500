"""Tables as others write them: Parquet of any program, workbooks of Excel, and all kinds of CSV."""

import re
import zipfile
from datetime import date, datetime, time
from pathlib import Path

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from texts import CHAT, documents, told, write, zipped

from gptcore.checks import UserError


def test_a_parquet_file_is_read_with_its_nested_messages(tmp_path: Path) -> None:
    table = pyarrow.table({"messages": [CHAT, CHAT], "score": [0.1, 0.2]})
    pyarrow.parquet.write_table(table, tmp_path / "train-00000")
    assert documents(tmp_path / "train-00000") == [CHAT, CHAT]
    small = zstandard.compress((tmp_path / "train-00000").read_bytes())
    assert documents(write(tmp_path / "train.zst", small)) == [CHAT, CHAT]
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice")
    with pytest.raises(UserError, match="twice: it has the column 'text' twice"):
        documents(tmp_path / "twice")
    write(tmp_path / "cut", (tmp_path / "train-00000").read_bytes()[:-20])
    with pytest.raises(UserError, match="is a damaged Parquet file"):
        documents(tmp_path / "cut")


def test_a_date_that_python_cannot_hold_and_text_that_is_not_utf_8_are_no_tracebacks(
    tmp_path: Path,
) -> None:
    eternity = pyarrow.array([2**62]).cast(pyarrow.timestamp("us"))
    latin = pyarrow.array(["Grüße".encode("latin-1")])
    not_text = pyarrow.StringArray.from_buffers(1, *latin.buffers()[1:])
    table = pyarrow.table({"text": ["Hello!"], "until": eternity})
    pyarrow.parquet.write_table(table, tmp_path / "dated")
    assert documents(tmp_path / "dated") == ["Hello!"]
    pyarrow.parquet.write_table(pyarrow.table({"text": not_text}), tmp_path / "latin")
    with pytest.raises(UserError, match=r"latin: it is a damaged Parquet file \('utf-8' codec"):
        documents(tmp_path / "latin")


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """A table that begins below a title, in the third column, and a second sheet."""
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet["C2"] = "What people ask us"
    rows = [
        ("Question", "Answer", "Asked"),
        ("How much is it?", 49.0, date(2026, 1, 2)),
        (None, None, None),
        ("Who is it?", "¡Soy yo!", 1e20),
    ]
    for i, row in enumerate(rows, 4):
        for j, cell in enumerate(row, 3):
            sheet.cell(i, j, cell)
    book.create_sheet("Notes").append(["a", "b"])
    book.create_sheet("Nothing")
    book.save(tmp_path / "faq.xlsx")
    return tmp_path / "faq.xlsx"


def test_cells_are_texts_as_excel_shows_them(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.append(["question", "answer"])
    cells = [datetime(2026, 5, 3, 14, 30), time(9, 30), 0.125, True, "#N/A"]
    for number, cell in enumerate([date(2026, 5, 3), *cells], 1):
        sheet.append([f"{number}?", cell])
    sheet["B5"].number_format = "0.0%"
    book.save(tmp_path / "faq.xlsx")
    found = [chat[1]["content"] for chat in documents(tmp_path / "faq.xlsx")]
    assert found == ["2026-05-03", "2026-05-03 14:30", "09:30", "12.5%", "TRUE"]
    assert "skipped 1: its 'answer' is empty (first: row 7)" in told(tmp_path / "faq.xlsx")


def test_of_a_workbook_the_first_sheet_with_rows_is_read(workbook: Path, tmp_path: Path) -> None:
    texts = [[message["content"] for message in chat] for chat in documents(workbook)]
    assert texts == [["How much is it?", "49"], ["Who is it?", "¡Soy yo!"]]
    said = told(workbook)
    assert "faq.xlsx: Excel, columns 'Question' and 'Answer' (not read: 'Asked'), 2 conv" in said
    assert "it is a title above the names of the columns (first: row 2)" in said
    assert "only the first sheet with rows is read: save this one as a file of its own" in said
    assert "sheet Notes" in said and "Nothing" not in said
    packed = write(tmp_path / "all.zip", zipped({"in/faq.xlsx": workbook.read_bytes()}))
    assert documents(packed) == documents(workbook)


def saved(path: Path, *rows: tuple[str, ...]) -> Path:
    """Write a workbook of one sheet."""
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    book.save(path)
    return path


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_title_above_two_columns_of_a_workbook_is_skipped(tmp_path: Path) -> None:
    rows = [("Our shop's FAQ",), ("Question", "Answer"), ("Hi", "Hello!")]
    path = saved(tmp_path / "faq.xlsx", *rows)
    assert documents(path) == [CHAT]
    assert "it is a title above the names of the columns (first: row 1)" in told(path)


def test_carriage_returns_in_cells_are_no_words(tmp_path: Path) -> None:
    """Excel writes a line break of Windows in this form."""
    path = saved(tmp_path / "poem.xlsx", ("text",), ("One line._x000D_\nAnother.",))
    assert documents(path) == ["One line.\nAnother."]


def test_a_hidden_sheet_is_read_only_if_all_are(tmp_path: Path) -> None:
    """A table's drop-down lists have their words in one."""
    path = saved(tmp_path / "faq.xlsx", ("text",), ("open",), ("closed",))
    book = openpyxl.load_workbook(path)
    book.worksheets[0].sheet_state = "hidden"
    table = book.create_sheet("FAQ")
    table.append(("Question", "Answer"))
    table.append(("Hi", "Hello!"))
    book.save(path)
    assert documents(path) == [CHAT]
    assert "skipped" not in told(path)
    members = members_of(path)
    members["xl/workbook.xml"] = members["xl/workbook.xml"].replace(b'"visible"', b'"hidden"')
    assert documents(write(path, zipped(members))) == ["open", "closed"]


def test_a_workbook_may_say_that_it_is_huge(workbook: Path, tmp_path: Path) -> None:
    members = members_of(workbook)
    sheet = "xl/worksheets/sheet1.xml"
    members[sheet] = re.sub(rb'ref="[^"]*"', b'ref="A1:XFD1048576"', members[sheet], count=1)
    assert documents(write(tmp_path / "huge.xlsx", zipped(members))) == documents(workbook)
    far = b'<row r="1000000000"><c r="A1000000000"><v>1</v></c></row></sheetData>'
    members[sheet] = members[sheet].replace(b"</sheetData>", far)
    assert documents(write(tmp_path / "far.xlsx", zipped(members))) == documents(workbook)
    members["xl/sharedStrings.xml"] = bytes(60_000_000)
    with pytest.raises(UserError, match=r"bomb\.xlsx: it unpacks from .* as no text does"):
        documents(write(tmp_path / "bomb.xlsx", zipped(members)))


NO_SUCH_TEXT = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    b'<row><c t="s"><v>9</v></c></row></sheetData></worksheet>'
)


@pytest.mark.parametrize("name", ["xl/workbook.xml", "xl/worksheets/sheet1.xml"])
@pytest.mark.parametrize("content", [b"", b"<", b"<workbook/>", bytes(100), NO_SUCH_TEXT])
def test_a_damaged_workbook_is_no_traceback(
    workbook: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    members = members_of(workbook)
    path = write(tmp_path / "bad.xlsx", zipped(members | {name: content}))
    with pytest.raises(UserError, match=r"bad\.xlsx: it is a (damaged workbook|table with)"):
        documents(path)


@pytest.mark.parametrize(
    "table",
    [
        "Zeitstempel;Was, wenn überhaupt, gefiel?;Was, wenn überhaupt, nicht?\n1;Das.;Es.\n",
        '"Nr.";"Question, please";"Answer, thanks"\n"1";"Das.";"Es."\n',
        "Nr.;Frage, allgemein;Antwort, kurz, deutlich\n1;Das.;Es.\n",
        'Nr.,question,answer\n"1;1;1;1",Das.,Es.\n',
    ],
)
def test_what_separates_columns_does_so_in_every_row(tmp_path: Path, table: str) -> None:
    path = write(tmp_path / "a.csv", table)
    first = table.splitlines()[0].replace('"', "")
    columns = tuple(first.split(";" if ";" in first else ",")[1:])
    [[asked, answer]] = documents(path, columns=columns)
    assert (asked["content"], answer["content"]) == ("Das.", "Es.")


NAMED = (
    "Category,Customer question,Our answer,Shown?|Hours,Are you open on day {i}?,Until {i}.,yes",
    "What do customers ask?,What do we say?|Do you sell item {i}?,We have sold it for {i} years.",
    "Kategorie;Kundenfrage;Unsere Antw.;Seit|Zeiten;Habt ihr am Tag {i} offen?;Ja, bis {i}.;{i}",
    "Question posée ?;Que répondre ?|Êtes-vous ouverts le {i} mai ?;Oui, de neuf à {i} heures.",
    "类别,客户问了什么？,我们怎么回答？,已发布？|时间,你们{i}号开门吗？,开门，从九点到{i}点。,是",
    "How satisfied were you with all of our shop?,And why?|Very {i}.,It is good.",
)
NAMELESS = (
    "Are you open on Sunday?,No|Do you sell item {i}?,Yes {i}",
    "Hours,Are you open on Sunday?,No|Hours,Do you sell item {i}?,Yes|Goods,Is it new?,No",
    "ham,Nah I think he is at home|spam,Free entry no {i}|ham,Until {i} then",
    "Hello!,Hello! How can I help you?|Do you sell item {i}?,We have for {i} years.",
    "1,Who are you?,A shop|{i},Where is number {i}?,In Troy",
    ",Are you open?,We are open on all days.,|Hours,On day {i}?,Yes.,4/2/2025",
    "你叫什么名字？,我叫小明|今天是{i}号吗？,今天是{i}号以后",
    "Wie geht es dir?;Gut, danke!|Was ist {i}?;Das ist {i}.",
    "Where are you?,In Troy|Are you open?,Yes.",
)


def table_of(path: Path, written: str) -> Path:
    """Write a first row and, twelve times with other numbers, those that follow it."""
    first, *rows = written.split("|")
    n = 12 if "{i}" in written else 1
    more = [row.format(i=i) for i in range(20, 20 + n) for row in rows]
    return write(path, "\n".join([first, *more]) + "\n")


@pytest.mark.parametrize("written", NAMED)
def test_names_of_columns_may_be_questions_where_the_rows_below_are_others(
    tmp_path: Path, written: str
) -> None:
    path = table_of(tmp_path / "faq.csv", written)
    first = re.split("[,;](?! )", written.partition("|")[0])
    with pytest.raises(UserError, match=f"its columns are {re.escape(repr(first[0]))}"):
        documents(path, columns=("Frage",))
    assert len(documents(path, columns=(first[0], first[1]))) == 12


@pytest.mark.parametrize("written", NAMELESS)
def test_a_first_row_that_is_like_those_below_it_is_none_of_names(
    tmp_path: Path, written: str
) -> None:
    path = table_of(tmp_path / "faq.csv", written)
    with pytest.raises(UserError, match="its columns are 'column 1'"):
        documents(path, columns=("Frage",))


def test_numbered_columns_that_the_user_names_make_the_first_row_one_of_cells(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "pairs.tsv", "ein Haus\ta house\nein Baum\ta tree\n")
    assert len(documents(path)) == 1
    assert len(documents(path, columns=("column 1", "column 2"))) == 2


@pytest.mark.parametrize("first", ["", "sep=;\n"])
def test_a_row_of_csv_has_the_number_that_a_spreadsheet_shows(tmp_path: Path, first: str) -> None:
    """Cells have line breaks, an empty line is a row, and Excel takes "sep=;" for none."""
    table = first + 'Question;Answer\n"Hi\nyou";"Hello!\n\nAgain."\n\nBye;\n'
    path = write(tmp_path / "faq.csv", table)
    assert "skipped 1: its 'answer' is empty (first: row 4)" in told(path)
