"""Tables as others write them: Parquet of any program, and CSV whatever separates its columns."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from texts import CHAT, documents, write

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
