"""Tables to documents: CSV and its kin, Excel and Parquet.

>>> cell_text(49.0), cell_text(0.5, "0%"), cell_text(datetime(2026, 5, 3))
('49', '50%', '2026-05-03')
"""

import csv
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time
from itertools import chain, islice
from typing import Any, TextIO

from gptcore.checks import shorten
from gptcore.system.wording import counted
from training.formats.chats.tabular import Row, chat_columns, items_of_table
from training.formats.found import Asked, Found, Kind, NoText, Skip, Unreadable
from training.formats.kinds import delimiter_of
from training.formats.lines import MAX_VALUE, head_of, open_text
from training.formats.packed import DAMAGED, seekable
from training.formats.places import File
from training.formats.rows import items_of
from training.formats.tables.columns import guess, is_header, is_title, known, listed

LOOKED_AT = 100  # rows that a guess is made from
ROWS_AT_ONCE = 100  # of Parquet, in memory; a row may have pictures
MOST_ROWS = 1 << 20  # of a sheet, as in Excel
PERCENT = re.compile(r"0(?:\.(0+))?%")  # Excel's format of a number


def read_table(file: File, asked: Asked) -> Found:
    """Yield the documents of a file with separated columns, whose first row names them."""
    head = head_of(file)
    is_tsv = file.inner_name.endswith(".tsv") and "\t" in head
    delimiter = "\t" if is_tsv else delimiter_of(head)
    with open_text(file) as stream:
        name = "TSV" if delimiter == "\t" else "CSV"
        rows = numbered_rows(stream, delimiter, is_quoted(file, delimiter))
        yield from documents(name, named_rows(rows, asked.columns), asked)


def is_quoted(file: File, delimiter: str) -> bool:
    """Whether quotes enclose cells, as spreadsheets write them; in other TSV they are words."""
    if delimiter != "\t":
        return True
    try:
        with open_text(file) as stream:
            rows = numbered_rows(stream, delimiter, has_quoted=True)
            return all(True for _ in named_rows(rows, columns=()))
    except Unreadable:
        return False


def named_rows(
    rows: Iterator[tuple[str, list[str]]], columns: tuple[str, ...]
) -> Iterator[tuple[str, Row | Skip]]:
    """Yield the rows by the names of their columns; `columns` are names that the user gave."""
    head: list[str] = []
    first = [*islice(rows, LOOKED_AT)]
    for number, (where, row) in enumerate(chain(first, rows), 1):
        if not any(cell.strip() for cell in row):
            yield where, Skip(where, "it is an empty row")
            continue
        if not head:
            names = [name.strip() for name in row]
            below = [cells for _, cells in first[number:]]
            is_asked = bool({*columns} & {*names})
            if not is_asked and is_title(names, below[0] if below else []):
                yield where, Skip(where, "it is a title above the names of the columns")
                continue
            head = [f"column {number}" for number in range(1, len(row) + 1)]
            if is_asked or (not {*columns} & {*head} and is_header(names, below)):
                head = [name or number for name, number in zip(names, head)]
                check_names(head)
                continue
        if len(row) != len(head):
            reason = f"it has {counted(len(row), 'column')} where the first row has {len(head)}"
            yield where, Skip(where, reason)
        else:
            yield where, dict(zip(head, row))


def numbered_rows(
    stream: TextIO, delimiter: str, has_quoted: bool
) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each row, and which row it is to Excel. Raises Unreadable."""
    csv.field_size_limit(MAX_VALUE)
    reader = csv.reader(
        stream,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if has_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    number = 0
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise Unreadable(
                f"line {line}: its quotes do not match ({error}): write each quote within a cell "
                f"twice, and the cell in quotes"
            ) from None
        if number == 0 and row and row[0].lower() == "sep=":  # "sep=;" is no row to Excel
            continue
        number += 1
        if len(row) > 1 or any(map(str.strip, row)):
            yield f"row {number}", row


def check_names(head: list[str]) -> None:
    if twice := next((name for name in head if head.count(name) > 1), None):
        raise Unreadable(f"it has the column {twice!r} twice, and one would be lost: rename one")


def read_excel(file: File, asked: Asked) -> Found:
    """Yield the documents of a workbook's first sheet that has rows and is not hidden."""
    import openpyxl

    rows: list[tuple[str, list[str]]] = []
    others = []
    with seekable(file) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of drop-down lists and the like, which are no words
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
            for sheet in shown or book.worksheets:
                if not rows:
                    rows = [*sheet_rows(sheet)]
                elif any(True for _ in sheet_rows(sheet)):
                    others.append(sheet.title)
        except (*DAMAGED, LookupError, TypeError, SyntaxError, ValueError) as error:
            reason = shorten(str(error))
            raise Unreadable(f"it is a damaged workbook ({reason}): save it as CSV") from None
    yield from documents("Excel", named_rows(evened(rows), asked.columns), asked)
    for title in others:
        reason = "only the first sheet with rows is read: save this one as a file of its own"
        yield Skip(f"sheet {title}", reason)


def sheet_rows(sheet: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield a sheet's rows that have words, each with its place; their lengths may differ."""
    sheet.reset_dimensions()  # what a file says of its size may be wrong, or far too large
    # Rows that are left out before a number are yielded, and a number may be a billion.
    for number, row in enumerate(sheet.iter_rows(max_row=MOST_ROWS), 1):
        cells = ["" if c.data_type == "e" else cell_text(c.value, c.number_format) for c in row]
        if any(map(str.strip, cells)):
            yield f"row {number}", cells


def evened(rows: list[tuple[str, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows at one length, without the empty columns to the left and right of all."""
    used = [[i for i, cell in enumerate(row) if cell.strip()] for _, row in rows]
    first, end = min((i[0] for i in used), default=0), max((i[-1] + 1 for i in used), default=0)
    for where, row in rows:
        yield where, [*row[first:end], *[""] * (end - max(first, len(row)))]


def cell_text(value: Any, number_format: str | None = None) -> str:
    """Return what a cell holds as a person reads it; what Excel cannot compute is left empty.

    >>> cell_text(time(9, 30)), cell_text(True), cell_text(None)
    ('09:30', 'TRUE', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime | time):
        written = value.isoformat(" ", "seconds") if isinstance(value, datetime) else str(value)
        return written.removesuffix(" 00:00:00").removesuffix(":00")
    if isinstance(value, int | float) and (found := PERCENT.fullmatch(number_format or "")):
        return f"{value:.{len(found[1] or '')}%}"
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).replace("_x000D_", "")  # Excel's carriage return


def read_parquet(file: File, asked: Asked) -> Found:
    import pyarrow
    import pyarrow.parquet

    def rows() -> Iterator[tuple[str, Row | Skip]]:
        number = 0
        with seekable(file) as stream:
            table = pyarrow.parquet.ParquetFile(stream)
            check_names(table.schema_arrow.names)
            for batch in table.iter_batches(ROWS_AT_ONCE):
                for row in rows_in(batch):
                    number += 1
                    yield f"row {number}", row

    try:
        yield from documents("Parquet", rows(), asked)
    except Unreadable:
        raise
    except (pyarrow.ArrowException, OSError, OverflowError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise Unreadable(f"it is a damaged Parquet file ({reason}): fetch it again") from None


def rows_in(batch: Any) -> list[Row]:
    """Return some rows of Parquet. Dates that Python cannot hold are texts."""
    import pyarrow

    try:
        return batch.to_pylist()
    except (OverflowError, ValueError):  # beyond the years 1 to 9999, or of nanoseconds
        is_time, text = pyarrow.types.is_temporal, pyarrow.string()
        columns = [one.cast(text) if is_time(one.type) else one for one in batch]
        return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()


def documents(kind: str, rows: Iterator[tuple[str, Row | Skip]], asked: Asked) -> Found:
    """Yield the documents of a table's rows, after saying which columns are read."""
    first = list(islice(rows, LOOKED_AT))
    named = [row for _, row in first if isinstance(row, dict)]
    if not first:
        raise NoText("it is a table without rows")
    if not named:
        skip = next(row for _, row in first if isinstance(row, Skip))
        raise Unreadable(
            f"none of its rows can be read ({skip.where}: {skip.reason}): put cells with a "
            f"comma in quotes, and the names of the columns first"
        )
    columns = list(named[0])
    if missing := [name for name in asked.columns if name not in columns]:
        quote = any("," in name for name in columns)
        hint = """; one with a comma is named in quotes: --columns '"A, b"'""" if quote else ""
        apart = ",".join(re.split("[;|\t]", missing[0]))
        hint = (
            f"; a comma is between two names: --columns {apart!r}" if apart != missing[0] else hint
        )
        raise Unreadable(
            f"it has no column {missing[0]!r}: its columns are {listed(columns)}{hint}"
        )
    if not asked.columns and (chat := chat_columns(named)):
        yield from items_of_table(chain(first, rows), chat, asked)
        return
    use, notes = "columns", []
    if not (used := [*asked.columns] or known(columns)):
        used = guess(named)
        asked = replace(asked, columns=tuple(used))
        use, notes = "guessed: questions and answers in", ["name others with --columns"]
    if len(asked.columns) == 1:
        use = f"{'guessed: ' * bool(notes)}a text in each cell of column"
    elif len(used) == 1:
        use = "column"
    kind = f"{kind}, {use} {listed(used)}"
    if unread := [name for name in columns if name not in used]:
        notes.append(f"not read: {listed(unread)}")
    yield Kind(f"{kind} ({'; '.join(notes)})" if notes else kind)
    for where, row in chain(first, rows):
        yield from [row] if isinstance(row, Skip) else items_of(row, where, asked)
