"""Rows to batches: a pure order, in which each epoch gives documents other neighbours."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_shards import ASSISTANT, BYTES, ENDOFTEXT, PAD, USER, Tokens, plain_rows, token_shards

from gptcore.text.chat_template import loss_mask
from training.data.batches import Batches
from training.data.exchanges import FOLLOWING
from training.data.rows import IGNORED, WINDOW, Rows
from training.machine.processes import World

seeds = st.integers(0, 2**63 - 1)


def slow_rows(
    documents: list[np.ndarray], block_size: int, following: set[int]
) -> Iterator[tuple[list, list]]:
    """Yield the inputs and targets of documents, row by row, as the module says it in words."""
    ids = np.concatenate(documents).astype(int)
    starts = [sum(map(len, documents[:i])) for i in range(len(documents)) if i not in following]
    learned = loss_mask(ids, BYTES)
    at = 0
    while at < len(ids) - 1:
        row, mask = ids[at : at + block_size + 1], learned[at : at + block_size + 1]
        padding = block_size + 1 - len(row)
        targets = np.where(mask, row, IGNORED)[1:].tolist() + [IGNORED] * padding
        yield row[:-1].tolist() + [PAD] * padding, targets
        inside = [start for start in starts if at < start <= at + block_size]
        at = inside[-1] if inside else at + block_size


def slow_following(documents: list[np.ndarray], rng: np.random.Generator) -> set[int]:
    """Draw which exchanges of one message and one reply follow another, if most documents are."""
    is_one = [
        ids.tolist()[1:2] == [USER] and sum(ids == USER) == sum(ids == ASSISTANT) == 1
        for ids in documents
    ]
    if sum(is_one) <= len(documents) / 2:
        return set()
    possible = [i for i in range(1, len(documents)) if is_one[i - 1] and is_one[i]]
    return {i for i in possible if rng.random() < FOLLOWING}


def slow_epoch(tokens: Tokens, rows: Rows, seed: int, epoch: int) -> list[tuple[list, list]]:
    """The rows of an epoch: shards are dealt, then documents permuted, then their rows."""
    n = len(tokens.ids)
    dealt = list(range(n))
    if n > WINDOW:
        dealt = np.random.default_rng([seed, epoch]).permutation(n).tolist()
    read = []
    for window in range(-(-n // WINDOW)):
        shards = dealt[window * WINDOW : (window + 1) * WINDOW]
        documents = [d for s in shards for d in np.split(tokens.ids[s], tokens.starts[s][1:])]
        rng = np.random.default_rng([seed, epoch, window + 1])
        packed = [documents[i] for i in rng.permutation(len(documents))]
        following = slow_following(packed, rng) if n == 1 else set()
        packed = [ids[1:] if i in following else ids for i, ids in enumerate(packed)]
        made = list(slow_rows(packed, rows.block_size, following))
        made = [made[i] for i in rng.permutation(len(made))]
        n_rows = sum(int(rows.first[s + 1] - rows.first[s]) for s in shards)
        read += [made[i % len(made)] for i in range(n_rows)]
    return read


@given(token_shards(max_size=6), st.integers(1, 24), st.integers(1, 12), seeds)
def test_batches_are_those_that_are_made_row_by_row(
    tokens: Tokens, block_size: int, batch_size: int, seed: int
) -> None:
    rows = Rows(tokens, "train", block_size)
    batches = Batches(rows, seed, batch_size)
    expected = [row for epoch in range(3) for row in slow_epoch(tokens, rows, seed, epoch)]
    assert len(expected) == 3 * len(rows)
    for step in range(len(expected) // batch_size):
        x, y = batches.batch(step)
        part = expected[step * batch_size : (step + 1) * batch_size]
        assert list(zip(x.tolist(), y.tolist())) == part


@given(st.integers(1, 30), st.integers(1, 12), seeds)
def test_every_epoch_reads_each_row_of_a_text_once(n_rows: int, batch_size: int, seed: int) -> None:
    rows = plain_rows([n_rows])
    assert len(rows) == n_rows
    batches = Batches(rows, seed, batch_size)
    order = [row for step in range(-(-3 * n_rows // batch_size)) for _, row in batches.order(step)]
    for epoch in range(3):
        assert sorted(order[epoch * n_rows : (epoch + 1) * n_rows]) == list(range(n_rows))


def short_documents(n: int, length: int) -> Tokens:
    """A shard of documents that each begin with ENDOFTEXT and their own number."""
    ids = np.array([id_ for i in range(n) for id_ in (ENDOFTEXT, *[i] * (length - 1))])
    return Tokens([ids], [np.arange(n) * length], [])


def test_a_document_has_other_neighbours_in_each_epoch() -> None:
    """A model that always reads the same one before learns it as a part of the question."""
    batches = Batches(Rows(short_documents(100, 5), "train", 40), 3, 1)
    n_rows = len(batches.rows)
    before: Counter[tuple[int, int]] = Counter()
    for step in range(20 * n_rows):
        [row] = batches.batch(step)[0].tolist()
        read = [id_ for id_ in row[1::5] if id_ != PAD]
        before.update(pairwise(read))
    documents = Counter(after for pair, n in before.items() for after in [pair[1]] * n)
    assert len(documents) == 100 and min(documents.values()) >= 10
    assert max(before.values()) <= 4


def test_every_document_is_read_in_nearly_every_epoch_and_is_the_first_of_a_row_in_some() -> None:
    batches = Batches(Rows(short_documents(100, 5), "train", 40), 3, 1)
    n_rows = len(batches.rows)
    seen, first = Counter[int](), Counter[int]()
    for epoch in range(40):
        rows = [batches.batch(step)[0] for step in range(epoch * n_rows, (epoch + 1) * n_rows)]
        seen.update({id_ for [row] in rows for id_ in row[1::5].tolist()} - {PAD})
        first.update(int(row[0][1]) for row in rows)
    assert min(seen[i] for i in range(100)) >= 38 and min(first[i] for i in range(100)) >= 1


def read_by(batches: Batches, steps: range) -> list[list]:
    return [batches.batch(step)[0].tolist() for step in steps]


def test_the_order_is_a_function_of_seed_and_step_alone() -> None:
    forwards = read_by(Batches(plain_rows([50]), 3, 8), range(40))
    for _ in range(2):
        batches = Batches(plain_rows([50]), 3, 8)
        assert read_by(batches, range(39, -1, -1))[::-1] == forwards
        np.random.seed(5)
        assert read_by(batches, range(17, 18)) == [forwards[17]]


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    orders = {
        tuple(row for _, row in Batches(plain_rows([50]), seed, 50).order(epoch))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


@given(st.lists(st.integers(1, 9), min_size=1, max_size=11), st.integers(1, 25), st.integers(0, 99))
def test_what_a_step_reads_and_the_window_after_it_are_known_before(
    lengths: list[int], batch_size: int, step: int
) -> None:
    rows = plain_rows(lengths)
    batches = Batches(rows, 5, batch_size)
    near = set(batches.near(step))
    assert len(batches.near(step)) == len(near)

    def shards_of(step: int) -> set[str]:
        packings = [packing for packing, _ in batches.order(step)]
        return {str(i) for packing in packings for i in packing.documents[:, 0]}

    assert shards_of(step) <= near
    if batch_size == 1:  # it lies in one window
        assert len(near) <= 2 * WINDOW + 1
        following = (shards_of(later) for later in range(step, step + len(rows) + 1))
        assert next((shards for shards in following if shards != shards_of(step)), set()) <= near
    assert "0" in near  # it is sampled


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_slices_of_all_processes_are_the_batch(n: int) -> None:
    batches = Batches(Rows(short_documents(100, 5), "train", 24), 4, 8)
    parts = [batches.batch(3, World(rank, n)) for rank in range(n)]
    for tensor, slices in zip(batches.batch(3), zip(*parts)):
        assert [len(part) for part in slices] == [8 // n] * n
        assert torch.equal(torch.stack(slices, 1).flatten(0, 1), tensor)
