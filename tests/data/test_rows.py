"""Shards to rows: every token once, and targets that are the assistant's."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_shards import BYTES, PAD, Part, Tokens, plain_rows, token_shards

from gptcore.checks import UserError
from gptcore.text.chat_template import loss_mask
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import read_documents
from training.data.rows import IGNORED, Rows, row_table
from training.data.shards.folder import Shards, prepare
from training.data.survey import survey
from training.formats.places import find_files


def table_of(rows: Rows) -> list[tuple[int, int, int, int]]:
    """(shard, document, start, fresh) of each row."""
    shards = range(len(rows.split))
    return [(shard, *row) for shard in shards for row in rows.packing(shard).table.tolist()]


def all_of(rows: Rows, fresh_only: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return rows.batch(np.arange(len(rows)), fresh_only)


def test_a_row_begins_with_the_last_document_that_begins_in_the_row_before() -> None:
    """Or goes on with that one, if it is longer than a row."""
    table = row_table(np.array([0, 2, 5, 12]), end=30, block_size=6)
    rows = [[0, 0, 5], [5, 5, 6], [5, 11, 1], [12, 12, 6], [12, 18, 6], [12, 24, 5]]
    assert table.tolist() == rows


@given(token_shards(), st.integers(1, 24))
def test_a_pass_counts_each_learned_token_once_after_the_one_before_it(
    tokens: Tokens, block_size: int
) -> None:
    x, y = all_of(Rows(tokens, "val", block_size), fresh_only=True)
    counted = y != IGNORED
    pairs = zip(tokens.ids, tokens.learned)
    expected = [(ids[:-1][learned[1:]], ids[1:][learned[1:]]) for ids, learned in pairs]
    before, after = (np.concatenate(part).tolist() for part in zip(*expected))
    assert x[counted].tolist() == before
    assert y[counted].tolist() == after


@given(token_shards())
def test_the_loss_mask_of_whole_documents_says_the_same(tokens: Tokens) -> None:
    for ids, starts, learned in zip(tokens.ids, tokens.starts, tokens.learned):
        for start, end in pairwise([*starts, len(ids)]):
            mask = loss_mask(ids[start:end], BYTES)
            assert mask[1:].tolist() == learned[start + 1 : end].tolist()


@given(token_shards(), st.integers(1, 24))
def test_rows_hold_consecutive_tokens_and_then_padding_without_targets(
    tokens: Tokens, block_size: int
) -> None:
    rows = Rows(tokens, "val", block_size)
    for (shard, _, start, fresh), x, y in zip(table_of(rows), *all_of(rows, fresh_only=False)):
        ids = tokens.ids[shard][start : start + block_size + 1].astype(np.int64)
        learned = tokens.learned[shard][start : start + block_size + 1]
        n = len(ids) - 1
        assert 1 <= fresh <= n
        assert x.tolist() == ids[:-1].tolist() + [PAD] * (block_size - n)
        targets = np.where(learned, ids, IGNORED)[1:].tolist()
        assert y.tolist() == targets + [IGNORED] * (block_size - n)


@given(token_shards(), st.integers(1, 24))
def test_every_document_that_fits_is_whole_in_some_row(tokens: Tokens, block_size: int) -> None:
    rows = Rows(tokens, "val", block_size)
    for shard, (ids, starts) in enumerate(zip(tokens.ids, tokens.starts)):
        begins = rows.packing(shard).table[:, 1].astype(int)
        for start, end in pairwise([*starts, len(ids)]):
            if 1 < end - start <= block_size + 1:
                assert any(at <= start and end <= at + block_size + 1 for at in begins)


@pytest.fixture(scope="module")
def shards(chats: Path, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Shards:
    files = find_files([chats])
    folder = tmp_path_factory.mktemp("shards")
    return prepare(lambda: read_documents(files), folder, 512, tokenizer)


@pytest.mark.parametrize("block_size", [24, 256])
def test_targets_of_conversations_are_the_assistants_words_and_ends(
    shards: Shards, chats: Path, block_size: int
) -> None:
    corpus = list(read_documents(find_files([chats])))
    found = survey(lambda: corpus)
    replies = [
        message["content"]
        for document in corpus
        for message in document
        if found.is_validation(document) and message["role"] == "assistant"
    ]
    rows = Rows(shards, "val", block_size)
    assert block_size == 256 or any(start > document for _, document, start, _ in table_of(rows))
    y = all_of(rows, fresh_only=True)[1]
    targets = y[y != IGNORED].tolist()
    end = shards.tokenizer.special["<|end|>"]
    assert shards.tokenizer.decode(targets) == "".join(replies)
    assert targets.count(end) == len(replies)
    assert not set(targets) & (set(shards.tokenizer.special.values()) - {end})


def test_a_row_that_goes_on_with_a_conversation_knows_whose_words_they_are(shards: Shards) -> None:
    rows = Rows(shards, "train", 24)
    [shard] = shards.split("train")
    ids, table = shard[:], rows.packing(0).table
    going_on = np.flatnonzero(table[:, 1] > table[:, 0])[:200]
    assert len(going_on) == 200
    targets = np.where(loss_mask(ids, shards.tokenizer), ids.astype(np.int64), IGNORED)
    for (_, start, _), y in zip(table[going_on].tolist(), rows.batch(going_on)[1]):
        assert y.tolist() == targets[start + 1 : start + 25].tolist()


@pytest.mark.parametrize("block_size", [3, 7, 50])
def test_what_shall_not_be_learned_is_no_target_in_any_row(block_size: int) -> None:
    """As the prompts of a foreign format, of which the shard says where they are."""
    ids, spans = np.arange(100, 140), np.array([[2, 9], [11, 12], [13, 31]])

    class Spared(Tokens):
        def split(self, name: str) -> list[Part]:
            return [Part("0", ids, np.array([0, 20]), spans)]

    y = all_of(Rows(Spared([], [], []), "val", block_size), fresh_only=True)[1]
    spared = {i for start, stop in spans for i in range(start, stop)}
    assert y[y != IGNORED].tolist() == [ids[i] for i in range(1, 40) if i not in spared]


@pytest.mark.parametrize(("n_tokens", "every"), [(40, 5), (41, 4), (1, 200), (200, 1), (10**6, 1)])
def test_a_sample_of_a_split_is_spread_over_it(n_tokens: int, every: int) -> None:
    """Here 50 rows of four tokens, of which as many are read as hold the tokens asked for."""
    assert list(plain_rows([50]).sample(n_tokens)) == list(range(0, 50, every))
    assert list(plain_rows([10] * 5).sample(20)) == [0, 2, 4, 6, 8], "of the first shard"
    assert list(plain_rows([10] * 4).sample(20)) == list(range(0, 40, 8)), "of all"


def test_a_split_without_a_document_has_no_rows() -> None:
    rows = Rows(Tokens([np.array([], np.uint16)], [np.array([], np.int64)], []), "val", 4)
    assert len(rows) == 0 and all_of(rows, fresh_only=True)[0].shape == (0, 4)


def test_a_split_may_be_shorter_than_a_block() -> None:
    tokens = Tokens([np.arange(8)], [np.array([0])], [])
    assert len(Rows(tokens, "train", 7)) == len(Rows(tokens, "train", 8)) == 1
    inputs, targets = Rows(tokens, "train", 9).batch([0])
    assert inputs[0, :7].tolist() == list(range(7)) and (targets[0, 7:] == IGNORED).all()
    single = Tokens([np.arange(1)], [np.array([0])], [])
    assert len(Rows(single, "val", 8)) == 0
    with pytest.raises(UserError, match="it leaves one token to train on"):
        Rows(single, "train", 8)
