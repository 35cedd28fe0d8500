"""Shards to batches: every token once, targets that are the assistant's, and a pure order."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.text.chat_template import loss_mask
from gptcore.text.tokenizer import Tokenizer
from training.data.batches import IGNORED, WINDOW, Rows, row_table
from training.data.corpus import read_documents
from training.data.shards import Shards, prepare
from training.data.survey import survey
from training.formats.places import find_files
from training.machine.processes import World
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData
from training.tasks.language import LanguageModelling

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
unhurried = settings(deadline=None)  # the machine may be busy
ENDOFTEXT, PAD, _, USER, ASSISTANT, END = BYTES.special.values()


@dataclass(frozen=True)
class Part:
    """As training.data.shards.Shard."""

    name: str
    ids: np.ndarray
    starts: np.ndarray
    unlearned: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: slice) -> np.ndarray:
        return self.ids[which]


@dataclass(frozen=True)
class Tokens:
    """Ids of some shards, and which of them are to be learned, by how they were made."""

    ids: list[np.ndarray]
    starts: list[np.ndarray]
    learned: list[np.ndarray]
    tokenizer: Tokenizer = BYTES

    def split(self, name: str) -> list[Part]:
        """As Shards.split."""
        return [Part(str(i), *pair) for i, pair in enumerate(zip(self.ids, self.starts))]


# A plain text is its length, a conversation the lengths of its messages.
text_lengths = st.integers(1, 40)
chat_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=6)
shard_shapes = st.lists(st.one_of(text_lengths, chat_lengths), min_size=1, max_size=8)


@st.composite
def token_shards(draw: st.DrawFn) -> Tokens:
    """Shards of texts and conversations of random lengths."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    result = Tokens([], [], [])
    for shape in draw(st.lists(shard_shapes, min_size=1, max_size=3)):
        ids, starts, learned = [], [], []
        is_after_text = True
        for document in shape:
            starts.append(len(ids))
            ids.append(ENDOFTEXT)
            learned.append(is_after_text)  # it is what ends the text before
            is_after_text = isinstance(document, int)
            if is_after_text:
                ids += rng.integers(0, 256, document).tolist()
                learned += [True] * document
                continue
            for i, length in enumerate(document):
                role = (USER, ASSISTANT)[i % 2]
                ids += [role, *rng.integers(0, 256, length).tolist(), END]
                learned += [False, *[role == ASSISTANT] * (length + 1)]
        result.ids.append(np.array(ids, np.uint16))
        result.starts.append(np.array(starts, np.int64))
        result.learned.append(np.array(learned))
    return result


def table_of(rows: Rows) -> list[tuple[int, int, int, int]]:
    """(shard, document, start, fresh) of each row."""
    return [(i, *row) for i in range(len(rows.split)) for row in rows.table(i).tolist()]


def all_of(rows: Rows, fresh_only: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return rows.batch(np.arange(len(rows)), fresh_only)


def test_a_row_begins_with_the_last_document_that_begins_in_the_row_before() -> None:
    """Or goes on with that one, if it is longer than a row."""
    table = row_table(np.array([0, 2, 5, 12]), end=30, block_size=6)
    rows = [[0, 0, 5], [5, 5, 6], [5, 11, 1], [12, 12, 6], [12, 18, 6], [12, 24, 5]]
    assert table.tolist() == rows


@unhurried
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


@unhurried
@given(token_shards())
def test_the_loss_mask_of_whole_documents_says_the_same(tokens: Tokens) -> None:
    for ids, starts, learned in zip(tokens.ids, tokens.starts, tokens.learned):
        for start, end in pairwise([*starts, len(ids)]):
            mask = loss_mask(ids[start:end], BYTES)
            assert mask[1:].tolist() == learned[start + 1 : end].tolist()


@unhurried
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


@unhurried
@given(token_shards(), st.integers(1, 24))
def test_every_document_that_fits_is_whole_in_some_row(tokens: Tokens, block_size: int) -> None:
    rows = Rows(tokens, "val", block_size)
    for shard, (ids, starts) in enumerate(zip(tokens.ids, tokens.starts)):
        begins = rows.table(shard)[:, 1].astype(int)
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
    ids, table = shard[:], rows.table(0)
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


def plain_rows(n_rows: int) -> Rows:
    """Rows of four tokens of one text."""
    ids = np.arange(4 * n_rows + 1) % 256
    return Rows(Tokens([ids], [np.array([0])], []), "train", 4)


@unhurried
@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**63 - 1))
def test_every_epoch_reads_each_row_once(n_rows: int, batch_size: int, seed: int) -> None:
    rows = plain_rows(n_rows)
    assert len(rows) == n_rows
    n_steps = -(-3 * n_rows // batch_size)
    order = np.concatenate([rows.order(seed, step, batch_size) for step in range(n_steps)])
    for epoch in range(3):
        read = order[epoch * n_rows : (epoch + 1) * n_rows]
        assert sorted(read) == list(range(n_rows))


def test_the_order_is_a_function_of_seed_and_step_alone() -> None:
    rows = plain_rows(50)
    forwards = [rows.order(3, step, 8).tolist() for step in range(40)]
    for other in (rows, plain_rows(50)):
        backwards = [other.order(3, step, 8).tolist() for step in reversed(range(40))]
        assert backwards[::-1] == forwards
    np.random.seed(5)
    assert rows.order(3, 17, 8).tolist() == forwards[17]


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    rows = plain_rows(50)
    orders = {tuple(rows.order(seed, epoch, 50)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def shards_of_lengths(lengths: list[int]) -> Rows:
    """A shard for each length, of one text, in rows of four tokens."""
    ids = [np.arange(4 * n + 1) % 256 for n in lengths]
    return Rows(Tokens(ids, [np.array([0])] * len(ids), []), "train", 4)


def slow_order(lengths: list[int], seed: int, epoch: int) -> list[int]:
    """The rows of an epoch, one by one: shards are permuted and dealt, then rows permuted."""
    numbers, first = [], 0
    for n in lengths:
        numbers.append(list(range(first, first + n)))
        first += n
    if len(lengths) <= WINDOW:
        return np.random.default_rng([seed, epoch]).permutation(first).tolist()
    dealt = np.random.default_rng([seed, epoch]).permutation(len(lengths)).tolist()
    read = []
    for window in range(-(-len(lengths) // WINDOW)):
        rows = [r for s in dealt[window * WINDOW : (window + 1) * WINDOW] for r in numbers[s]]
        places = np.random.default_rng([seed, epoch, window + 1]).permutation(len(rows))
        read += [rows[place] for place in places]
    return read


several_shards = st.lists(st.integers(1, 9), min_size=1, max_size=11)


@unhurried
@given(several_shards, st.integers(1, 25), st.integers(0, 2**63 - 1))
def test_shards_are_read_in_windows_and_every_epoch_reads_each_row_once(
    lengths: list[int], batch_size: int, seed: int
) -> None:
    rows = shards_of_lengths(lengths)
    n_steps = -(-3 * len(rows) // batch_size)
    order = np.concatenate([rows.order(seed, step, batch_size) for step in range(n_steps)])
    for epoch in range(3):
        read = order[epoch * len(rows) : (epoch + 1) * len(rows)].tolist()
        assert read == slow_order(lengths, seed, epoch)
        assert sorted(read) == list(range(len(rows)))


@unhurried
@given(several_shards, st.integers(1, 25), st.integers(0, 99))
def test_what_a_step_reads_and_the_window_after_it_are_known_before(
    lengths: list[int], batch_size: int, step: int
) -> None:
    rows = shards_of_lengths(lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    near = rows.near(5, step, batch_size)
    assert len(set(near)) == len(near)
    order = rows.order(5, step, batch_size)
    assert {str(owner[row]) for row in order} <= set(near)
    if batch_size == 1:  # it lies in one window
        assert len(near) <= 2 * WINDOW + 1
        epoch, at = divmod(step, len(rows))
        read = slow_order(lengths, 5, epoch) + slow_order(lengths, 5, epoch + 1)
        shards_read = [str(owner[row]) for row in read[at:]]
        assert set(shards_read[: lengths[int(near[0])]]) <= set(near)
    assert {str(owner[row]) for row in rows.sample(40)} <= set(near) | set(
        map(str, range(len(lengths) if len(lengths) <= WINDOW else 0))
    )


@pytest.mark.parametrize(("n_tokens", "every"), [(40, 5), (41, 4), (1, 200), (200, 1), (10**6, 1)])
def test_a_sample_of_a_split_is_spread_over_it(n_tokens: int, every: int) -> None:
    """Here 50 rows of four tokens, of which as many are read as hold the tokens asked for."""
    assert list(plain_rows(50).sample(n_tokens)) == list(range(0, 50, every))
    assert list(shards_of_lengths([10] * 5).sample(20)) == [0, 2, 4, 6, 8], "of the first shard"
    assert list(shards_of_lengths([10] * 4).sample(20)) == list(range(0, 40, 8)), "of all"


def test_a_split_without_a_document_has_no_rows() -> None:
    rows = Rows(Tokens([np.array([], np.uint16)], [np.array([], np.int64)], []), "val", 4)
    assert len(rows) == 0 and all_of(rows, fresh_only=True)[0].shape == (0, 4)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_slices_of_all_processes_are_the_batch(shards: Shards, n: int) -> None:
    model = ModelConfig(vocab_size=512, block_size=24, n_layer=1, n_embd=32, n_inner=64)
    run = Run(Path("none"), model, TrainConfig(batch_size=8, seed=4), RunData("", False, 0))
    whole = LanguageModelling(run, shards).batch(3)
    parts = [LanguageModelling(run, shards, World(rank, n)).batch(3) for rank in range(n)]
    for tensor, slices in zip(whole, zip(*parts)):
        assert [len(part) for part in slices] == [8 // n] * n
        assert torch.equal(torch.stack(slices, 1).flatten(0, 1), tensor)


def test_a_split_may_be_shorter_than_a_block() -> None:
    tokens = Tokens([np.arange(8)], [np.array([0])], [])
    assert len(Rows(tokens, "train", 7)) == len(Rows(tokens, "train", 8)) == 1
    inputs, targets = Rows(tokens, "train", 9).batch([0])
    assert inputs[0, :7].tolist() == list(range(7)) and (targets[0, 7:] == IGNORED).all()
    single = Tokens([np.arange(1)], [np.array([0])], [])
    assert len(Rows(single, "val", 8)) == 0
    with pytest.raises(UserError, match="it leaves one token to train on"):
        Rows(single, "train", 8)
