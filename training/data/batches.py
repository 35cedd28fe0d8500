"""Batches of token shards; the rows of a step are a pure function of (seed, step).

A row is block_size tokens and the token after each. Rows begin where documents begin, so a
conversation is seen from its start; a document longer than a row continues in the next one.

    >>> rows = Rows(shards, "train", block_size=512)                     # doctest: +SKIP
    >>> x, y = rows.batch(rows.order(seed=1, step=0, batch_size=32))     # doctest: +SKIP

An epoch is read in windows of a few shards, so that a corpus may be larger than the disk: each
epoch permutes the shards, divides them into windows, and permutes the rows within each window.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gptcore.checks import UserError
from gptcore.text.chat_template import ROLES, loss_mask
from training.data.shard import Shard
from training.data.shards import Shards

IGNORED = -100  # target id that cross_entropy skips
WINDOW = 4  # shards whose rows are shuffled together; the next window is fetched meanwhile


class Rows:
    """The rows of one split, numbered shard by shard: self.first[i] is shard i's first row.

    Raises UserError if the training split has no row.
    """

    def __init__(self, shards: Shards, split: str, block_size: int):
        self.tokenizer, self.block_size = shards.tokenizer, block_size
        self.split: list[Shard] = shards.split(split)
        special, is_ours = shards.tokenizer.special, shards.tokenizer.is_ours
        self.roles = [special[f"<|{role}|>"] for role in ROLES] if is_ours else []
        self.pad = special.get("<|pad|>", 0)  # it comes after all else, so any id would do
        # Keep the tables of two windows; those of all shards could exceed the memory.
        self.table = lru_cache(2 * WINDOW)(self.make_table)
        self.windows = lru_cache(2)(self.deal_windows)
        self.window_rows = lru_cache(2)(self.mix_window)
        counts = [len(self.table(i)) for i in range(len(self.split))]
        self.first = np.cumsum([0, *counts])
        if split == "train" and not len(self):
            raise UserError("the text is too short: it leaves one token to train on; give more")

    def make_table(self, shard: int) -> np.ndarray:
        """Return a shard's rows, (n_rows, 3) uint32: (document, start, fresh).

        A row covers the ids from index `start`. `document` is the index at which the document
        around `start` begins. The next row repeats all targets after the first `fresh`.
        """
        return row_table(self.split[shard].starts, len(self.split[shard]), self.block_size)

    def __len__(self) -> int:
        return int(self.first[-1])

    def sample(self, n_tokens: int) -> range:
        """Return rows of about n_tokens in total, spread evenly over the split.

        If the split is read in windows, they come from the first shard only.
        """
        n = len(self) if len(self.split) <= WINDOW else int(self.first[1])
        return range(0, n, max(1, n * self.block_size // n_tokens))

    def order(self, seed: int, step: int, batch_size: int) -> np.ndarray:
        """Return the rows of a step (batch_size,); each epoch is a new permutation."""
        spans = self.spans(seed, step, batch_size)
        return np.concatenate([self.window_rows(seed, e, w)[at] for e, w, at in spans])

    def near(self, seed: int, step: int, batch_size: int) -> list[str]:
        """Return the names of the shards that this step and the next window read."""
        places = [(epoch, window) for epoch, window, _ in self.spans(seed, step, batch_size)]
        epoch, window = places[-1]
        is_last = window + 1 == len(self.windows(seed, epoch)[0])
        places.append((epoch + 1, 0) if is_last else (epoch, window + 1))
        shards = [i for epoch, window in places for i in self.windows(seed, epoch)[0][window]]
        return list(dict.fromkeys(self.split[i].name for i in [*shards, 0]))  # for `sample`

    def spans(self, seed: int, step: int, batch_size: int) -> Iterator[tuple[int, int, slice]]:
        """Yield the parts of a step's batch as (epoch, window, positions in the window)."""
        position, end = step * batch_size, (step + 1) * batch_size
        while position < end:
            epoch, within = divmod(position, len(self))
            bounds = self.windows(seed, epoch)[1]
            window = int(np.searchsorted(bounds, within, side="right")) - 1
            n = min(end - position, int(bounds[window + 1]) - within)
            start = within - int(bounds[window])
            yield epoch, window, slice(start, start + n)
            position += n

    def deal_windows(self, seed: int, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return an epoch's windows: the shards of each, and the positions of their first rows."""
        shards = np.arange(len(self.split))
        if len(shards) > WINDOW:
            np.random.default_rng([seed, epoch]).shuffle(shards)
        windows = [shards[i : i + WINDOW] for i in range(0, len(shards), WINDOW)]
        counts = np.diff(self.first)
        return windows, np.cumsum([0, *(counts[window].sum() for window in windows)])

    def mix_window(self, seed: int, epoch: int, window: int) -> np.ndarray:
        """Return the rows of a window in the order in which they are read."""
        shards = self.windows(seed, epoch)[0][window]
        rows = np.concatenate([np.arange(self.first[i], self.first[i + 1]) for i in shards])
        # numpy treats [seed, epoch, 0] like [seed, epoch], the key of the shards' permutation.
        key = [seed, epoch] if len(self.split) <= WINDOW else [seed, epoch, window + 1]
        np.random.default_rng(key).shuffle(rows)
        return rows

    def batch(
        self, which: Sequence[int] | np.ndarray, fresh_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64; targets without a loss are IGNORED.

        With `fresh_only`, targets that the next row repeats are IGNORED, too, so that a pass
        over all rows counts each token once.
        """
        T = self.block_size
        x = np.full((len(which), T), self.pad, np.int64)
        y = np.full((len(which), T), IGNORED, np.int64)
        shards = np.searchsorted(self.first, which, side="right") - 1
        for i, (shard, row) in enumerate(zip(shards.tolist(), which)):
            document, start, fresh = self.table(shard)[row - self.first[shard]].tolist()
            ids, mask = self.read(self.split[shard], document, start)
            n = len(ids) - 1
            x[i, :n] = ids[:-1]
            y[i, :n] = np.where(mask[1:], ids[1:], IGNORED)
            if fresh_only:
                y[i, fresh:] = IGNORED
        return torch.from_numpy(x), torch.from_numpy(y)

    def read(self, shard: Shard, document: int, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a row's ids, and a mask of those that carry a loss.

        The mask of a conversation in our format depends on its beginning, so the ids are read from
        there. All tokens of a text carry a loss."""
        is_chat = start > document and int(shard[document + 1 : document + 2][0]) in self.roles
        context = document if is_chat else start
        ids = shard[context : start + self.block_size + 1].astype(np.int64)
        mask = loss_mask(ids, self.tokenizer)
        first = np.searchsorted(shard.unlearned[:, 1], context, side="right")
        for begin, stop in shard.unlearned[first:]:
            if begin >= context + len(ids):
                break
            mask[max(begin - context, 0) : stop - context] = False
        return ids[start - context :], mask[start - context :]


def row_table(starts: np.ndarray, end: int, block_size: int) -> np.ndarray:
    """Return the table of Rows.make_table.

    `starts`: the index at which each document begins; `end`: the number of ids.
    """
    n = len(starts)
    # The rows cover all ids. If documents begin inside a row, the next row begins with the last
    # of them.
    lengths = np.diff(starts, append=end - 1)
    n_rows = -(-lengths // block_size)  # rows of each document if a row begins with it
    following = np.searchsorted(starts, starts + n_rows * block_size, side="right") - 1
    following[-1:] = n
    chain, document, following = [], 0, following.tolist()
    while document < n:
        chain.append(document)
        document = following[document]
    n_rows = n_rows[chain]
    documents = np.repeat(starts[chain], n_rows)
    ordinal = np.arange(len(documents)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    at = documents + ordinal * block_size
    fresh = np.diff(at, append=max(end - 1, 0))
    return np.stack([documents, at, fresh], axis=1).astype(np.uint32)
