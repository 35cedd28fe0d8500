"""Rows of tokens, cut from documents that are packed one after the other.

A row is block_size tokens and the token after each. Rows begin where documents begin, so a
conversation is seen from its start; a document longer than a row continues in the next one.

    >>> rows = Rows(shards, "val", block_size=512)                       # doctest: +SKIP
    >>> x, y = rows.batch(range(8), fresh_only=True)                     # doctest: +SKIP
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gptcore.checks import UserError
from gptcore.text.chat_template import ROLES, loss_mask
from training.data.shards.folder import Shards
from training.data.shards.shard import Shard

IGNORED = -100  # target id that cross_entropy skips
NONE = np.zeros(0, np.int64)
WINDOW = 4  # shards that are read together; the next ones are fetched meanwhile


class Packing:
    """Documents one after the other, cut into rows; indices count ids from the first one's start.

    `documents`: (n, 3) uint32, in each row (shard, start, length): where the document lies.
    `starts`: (n,) int64, the index at which each begins. `table`: as row_table returns it.
    `following`: the numbers of those that go on with the chat before them; no row begins there
    for their sake.
    """

    def __init__(self, documents: np.ndarray, block_size: int, following: np.ndarray = NONE):
        ends = np.cumsum(documents[:, 2], dtype=np.int64)
        self.documents, self.starts = documents, ends - documents[:, 2]
        starts = np.delete(self.starts, following)
        self.table = row_table(starts, int(documents[:, 2].sum()), block_size)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, start, stop) of the pieces of shards that hold the ids start to stop.

        Documents that are neighbours in their shard, too, make one piece: opening a file costs
        more than reading a row.
        """
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        last = int(np.searchsorted(self.starts, stop, "left"))
        documents, starts = self.documents[first:last].tolist(), self.starts[first:last].tolist()
        piece = None
        for (shard, begin, length), at in zip(documents, starts):
            left, right = begin + max(start - at, 0), begin + min(stop - at, length)
            if piece and piece[0] == shard and piece[2] == left:
                piece = (shard, piece[1], right)
                continue
            if piece:
                yield piece
            piece = (shard, left, right)
        if piece:
            yield piece


class Rows:
    """The rows of one split in the order of its documents; self.first[i] is shard i's first row.

    Raises UserError if the training split has no row.
    """

    def __init__(self, shards: Shards, split: str, block_size: int):
        self.tokenizer, self.block_size = shards.tokenizer, block_size
        self.split: list[Shard] = shards.split(split)
        special, is_ours = shards.tokenizer.special, shards.tokenizer.is_ours
        self.roles = [special[f"<|{role}|>"] for role in ROLES] if is_ours else []
        self.pad = special.get("<|pad|>", 0)  # it comes after all else, so any id would do
        # Keep what a sample reads; the documents of all shards could exceed the memory.
        self.packing = lru_cache(WINDOW)(self.pack)
        counts = [len(self.packing(i).table) for i in range(len(self.split))]
        self.first = np.cumsum([0, *counts])
        if split == "train" and not len(self):
            raise UserError("the text is too short: it leaves one token to train on; give more")

    def __len__(self) -> int:
        return int(self.first[-1])

    def learned(self) -> tuple[int, int]:
        """Return how many tokens carry a loss, and how many bytes these have."""
        lengths, n_tokens, n_bytes = self.tokenizer.byte_lengths, 0, 0
        for row in range(len(self)):
            targets = self.batch([row], fresh_only=True)[1]
            ids = targets[targets != IGNORED].numpy()
            n_tokens += len(ids)
            n_bytes += int(lengths[ids].sum())
        return n_tokens, n_bytes

    def pack(self, shard: int) -> Packing:
        """Return the documents of a shard, cut into rows."""
        return Packing(self.documents(shard), self.block_size)

    def documents(self, shard: int) -> np.ndarray:
        """Return where each document of a shard lies, as Packing takes them."""
        starts = self.split[shard].starts
        lengths = np.diff(starts, append=len(self.split[shard]))
        return np.stack([np.full_like(starts, shard), starts, lengths], axis=1).astype(np.uint32)

    def sample(self, n_tokens: int) -> range:
        """Return rows of about n_tokens in total, spread evenly over the split.

        If the split is read in windows, they come from the first shard only.
        """
        n = len(self) if len(self.split) <= WINDOW else int(self.first[1])
        return range(0, n, max(1, n * self.block_size // n_tokens))

    def batch(self, which: Iterable[int], fresh_only: bool = False) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of rows, as `fill` does."""
        which = np.array(list(which), np.int64)
        shards = np.searchsorted(self.first, which, side="right") - 1
        places = zip(shards.tolist(), (which - self.first[shards]).tolist())
        return self.fill([(self.packing(shard), row) for shard, row in places], fresh_only)

    def fill(
        self, places: list[tuple[Packing, int]], fresh_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64; targets without a loss are IGNORED.

        With `fresh_only`, targets that the next row repeats are IGNORED, too, so that a pass
        over all rows counts each token once.
        """
        T = self.block_size
        x = np.full((len(places), T), self.pad, np.int64)
        y = np.full((len(places), T), IGNORED, np.int64)
        for i, (packing, row) in enumerate(places):
            document, start, fresh = packing.table[row].tolist()
            ids, mask = self.read(packing, document, start)
            n = len(ids) - 1
            x[i, :n] = ids[:-1]
            y[i, :n] = np.where(mask[1:], ids[1:], IGNORED)
            if fresh_only:
                y[i, fresh:] = IGNORED
        return torch.from_numpy(x), torch.from_numpy(y)

    def read(self, packing: Packing, document: int, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a row's ids, and a mask of those that carry a loss.

        The mask of a conversation in our format depends on its beginning, so the ids are read from
        there. All tokens of a text carry a loss."""
        context = document if start > document and self.is_chat(packing, document) else start
        ids, hidden = self.join(packing.pieces(context, start + self.block_size + 1))
        mask = loss_mask(ids, self.tokenizer) & ~hidden
        return ids[start - context :], mask[start - context :]

    def is_chat(self, packing: Packing, document: int) -> bool:
        ids, _ = self.join(packing.pieces(document, document + 2))
        return ids[-1] in self.roles

    def join(self, pieces: Iterable[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of pieces (n,) int64, and a mask of those that their shards hide."""
        pieces = list(pieces)
        ids = np.concatenate([self.split[shard][start:stop] for shard, start, stop in pieces])
        hidden = [self.split[shard].hidden(start, stop) for shard, start, stop in pieces]
        return ids.astype(np.int64), np.concatenate(hidden)


def row_table(starts: np.ndarray, end: int, block_size: int) -> np.ndarray:
    """Return a table of rows, (n_rows, 3) uint32: (document, start, fresh).

    A row covers the ids from index `start`. `document` is the index at which the document around
    `start` begins. The next row repeats all targets after the first `fresh`.

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
