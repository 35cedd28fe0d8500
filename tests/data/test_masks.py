"""For every kind of file, what a model sees of it and, between « and », what it learns."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from test_books import epub, pdf
from test_chats import ANDROID, WHATSAPP
from test_formats_read import CHAT, write, zipped

from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import read_documents
from training.formats.found import Asked
from training.formats.places import find_files
from training.look.samples import seen

TOKENIZER = Tokenizer.train([], 262)
HI = "<|endoftext|><|user|>Hi<|end|><|assistant|>«Hello!<|end|>»"
ME = Asked(me=("Ben",))
BEN = [
    "<|endoftext|><|user|>Are you there?\nHello?<|end|>"
    "<|assistant|>«Yes: here\n\nand waiting<|end|>»",
    "<|endoftext|><|user|>Morning.<|end|><|assistant|>«Coffee?<|end|>»",
]


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    table = pyarrow.table({"question": ["Hi"], "answer": ["Hello!"], "id": [1]})
    pyarrow.parquet.write_table(table, stream)
    return stream.getvalue()


def table(delimiter: str) -> bytes:
    stream = io.StringIO(newline="")
    rows = [["question", "answer"], ["Hi", "Hello!"]]
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    return stream.getvalue().encode()


FLOUR = "Flour and water are mixed, and left to rest for an hour before anything else is done."
SALT = "Then the salt is added, and the dough is folded four times in the course of two hours."
PAGE = (
    "<!DOCTYPE html><html><head><title>Bread</title></head><body><nav><a href='/'>Home</a>"
    f"<a href='/shop'>Shop</a></nav><article><p>{FLOUR}</p><p>{SALT}</p></article></body></html>"
).encode()
RULE = [{"role": "system", "content": "Be kind."}]
GOLDEN: dict[str, tuple[bytes, Asked, list[str]]] = {
    "text": (b"Once upon a time.", Asked(), ["<|endoftext|>«Once upon a time.»"]),
    "UTF-16": ("Grüße".encode("utf-16"), Asked(), ["<|endoftext|>«Grüße»"]),
    "Markdown": (b"# One\n\nTwo *three*.", Asked(), ["<|endoftext|>«# One\n\nTwo *three*.»"]),
    "texts in rows": (line({"text": "One."}), Asked(), ["<|endoftext|>«One.»"]),
    "messages": (
        line({"messages": [*RULE, *CHAT]}),
        Asked(),
        [HI.replace("<|user|>", "<|system|>Be kind.<|end|><|user|>")],
    ),
    "OpenAI's weights": (
        line({"messages": [*CHAT[:1], CHAT[1] | {"weight": 0}, *CHAT]}),
        Asked(),
        [HI.replace("«", "").replace("»", "") + HI.removeprefix("<|endoftext|>")],
    ),
    "ShareGPT": (
        line(
            {
                "conversations": [
                    {"from": "human", "value": "Hi"},
                    {"from": "gpt", "value": "Hello!"},
                ]
            }
        ),
        Asked(),
        [HI],
    ),
    "Alpaca": (
        line({"instruction": "Add.", "input": "2, 3", "output": "5"}),
        Asked(),
        ["<|endoftext|><|user|>Add.\n\n2, 3<|end|><|assistant|>«5<|end|>»"],
    ),
    "prompt and completion": (line({"prompt": "Hi", "completion": "Hello!"}), Asked(), [HI]),
    "a JSON array": (json.dumps([{"messages": CHAT}] * 2).encode(), Asked(), [HI, HI]),
    "CSV": (table(","), Asked(), [HI]),
    "CSV with semicolons": (table(";"), Asked(), [HI]),
    "TSV": (table("\t"), Asked(), [HI]),
    "a column of texts": (table(","), Asked(columns=("answer",)), ["<|endoftext|>«Hello!»"]),
    "Parquet": (parquet(), Asked(), [HI]),
    "HTML": (
        PAGE,
        Asked(),
        [f"<|endoftext|>«{FLOUR}\n{SALT}»"],
    ),
    "EPUB": (
        epub({"1.xhtml": "<p>Once upon a time.</p>"}),
        Asked(),
        ["<|endoftext|>«Once upon a time.»"],
    ),
    "PDF": (pdf("Once upon a time."), Asked(), ["<|endoftext|>«Once upon a time.»"]),
    "WhatsApp of an iPhone": (WHATSAPP.encode(), ME, BEN),
    "WhatsApp of Android": (ANDROID.encode(), ME, BEN),
    "gzip": (gzip.compress(line({"messages": CHAT})), Asked(), [HI]),
    "zstd": (zstandard.compress(line({"messages": CHAT})), Asked(), [HI]),
    "zip": (zipped(a__jsonl=line({"messages": CHAT}), b__csv=table(",")), Asked(), [HI, HI]),
}  # fmt: skip


@pytest.mark.parametrize("kind", GOLDEN)
def test_a_file_of_any_name_is_seen_and_learned_as_it_should_be(tmp_path: Path, kind: str) -> None:
    content, asked, expected = GOLDEN[kind]
    path = write(tmp_path / "file", content)
    found = read_documents(find_files([path]), asked)
    assert [seen(document, TOKENIZER) for document in found] == expected
