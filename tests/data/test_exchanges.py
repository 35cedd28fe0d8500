"""A table of questions: its rows are also asked one after the other, in one chat."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from chatml import CHATML, FOREIGN
from token_shards import BYTES

from gptcore.text.chat_template import Message, messages_of, render, replies
from gptcore.text.tokenizer import Tokenizer
from training.data.batches import Batches
from training.data.exchanges import Exchanges
from training.data.rows import IGNORED, Rows
from training.data.shards.folder import prepare

TABLE = [messages_of([f"What is {i}?", f"A number: {i}."]) for i in range(60)]
LONG_CHATS = [messages_of(["Hi", f"Hello {i}!", "Who?", "Me."]) for i in range(60)]
WITH_SYSTEM = [[{"role": "system", "content": "Be kind."}, *row] for row in TABLE]
OTHER_SYSTEMS = [[{"role": "system", "content": f"Be {i}."}, *TABLE[i]] for i in range(60)]


def rows_of(table: list[list[Message]], folder: Path, tokenizer: Tokenizer) -> Rows:
    return Rows(prepare(lambda: table, folder, 0, tokenizer), "train", 400)


@pytest.mark.parametrize("table", [TABLE, WITH_SYSTEM])
@pytest.mark.parametrize("tokenizer", [BYTES, FOREIGN])
def test_rows_of_a_table_follow_each_other_as_in_one_chat(
    table: list[list[Message]], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows, system = rows_of(table, tmp_path, tokenizer), table[0][:-2]
    [*inputs], [*targets] = Batches(rows, seed=1, batch_size=len(rows)).batch(0)
    opening = render(system, tokenizer)
    lengths = []
    for row, learned in zip(inputs, targets):
        ids = row.tolist()
        text = tokenizer.decode([i for i in learned.tolist() if i != IGNORED])
        assert re.fullmatch(r"(A number: \d+\.)+(A.{,12})?", text), "a reply is learned"
        starts = [at for at in range(len(ids)) if ids[at : at + len(opening)] == opening]
        for start, stop in pairwise(starts):
            chat = ids[start:stop]
            asked = re.findall(r"What is (\d+)\?", tokenizer.decode(chat))
            together = [*system, *(message for i in asked for message in TABLE[int(i)])]
            assert chat == replies(together, tokenizer)[0]
            lengths.append(len(asked))
    assert 1 in lengths and max(lengths) > 4


UNMARKED = Tokenizer(  # where a later question stands is told by the reply's end alone
    FOREIGN.ranks,
    special=FOREIGN.special,
    chat=replace(CHATML, opening_alone="<|im_start|>Q: ", user=("", "\n"), system=("", "\n")),
)
GREETED = [[{"role": "user", "content": "Hi"}, *row] for row in TABLE]


@pytest.mark.parametrize(
    ("chats", "tokenizer"),
    [
        (LONG_CHATS, BYTES),
        (OTHER_SYSTEMS, BYTES),
        (88 * TABLE, BYTES),
        (GREETED, BYTES),
        (TABLE, UNMARKED),
    ],
)
def test_chats_that_are_no_table_of_questions_stay_apart(
    chats: list[list[Message]], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = rows_of(chats, tmp_path, tokenizer)
    documents = rows.documents(0)
    assert not len(Exchanges(rows).follow(documents, np.random.default_rng(1)))
    assert (documents == rows.documents(0)).all()
