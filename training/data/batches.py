"""Batches of rows for training; the rows of a step are a pure function of (seed, step).

    >>> batches = Batches(Rows(shards, "train", 512), seed=1, batch_size=32)  # doctest: +SKIP
    >>> x, y = batches.batch(step=0)                                          # doctest: +SKIP

Each epoch packs the documents in a new order: were their neighbours always the same, a model
would learn them as part of the question. An epoch is read in windows of a few shards, so that a
corpus may be larger than the disk: each epoch permutes the shards, divides them into windows,
and permutes the documents, and then the rows, within each window. In a table of questions most
documents follow another in its chat (training/data/exchanges.py).
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from torch import Tensor

from training.data.exchanges import Exchanges
from training.data.rows import WINDOW, Packing, Rows
from training.machine.processes import World


class Batches:
    """The batches of a training split.

    An epoch has len(rows) rows. If a window's documents fill fewer rows than in their own order,
    some rows are repeated; if they fill more, some are left out.
    """

    def __init__(self, rows: Rows, seed: int, batch_size: int):
        self.rows, self.seed, self.batch_size = rows, seed, batch_size
        self.exchanges = Exchanges(rows)
        self.windows = lru_cache(2)(self.deal_windows)
        self.window = lru_cache(2)(self.mix_window)

    def batch(self, step: int, world: World = World()) -> tuple[Tensor, Tensor]:
        """Return this process's part of a step's batch: inputs and targets, each (B, T)."""
        return self.rows.fill(world.part(self.order(step)))

    def order(self, step: int) -> list[tuple[Packing, int]]:
        """Return the rows of a step, each by its number in a packing."""
        places = []
        for epoch, window, span in self.spans(step):
            packing, order = self.window(epoch, window)
            places += [(packing, row) for row in order[span].tolist()]
        return places

    def near(self, step: int) -> list[str]:
        """Return the names of the shards that this step and the next window read."""
        places = [(epoch, window) for epoch, window, _ in self.spans(step)]
        epoch, window = places[-1]
        is_last = window + 1 == len(self.windows(epoch)[0])
        places.append((epoch + 1, 0) if is_last else (epoch, window + 1))
        shards = [i for epoch, window in places for i in self.windows(epoch)[0][window]]
        names = [self.rows.split[i].name for i in [*shards, 0]]  # the first for Rows.sample
        return list(dict.fromkeys(names))

    def spans(self, step: int) -> Iterator[tuple[int, int, slice]]:
        """Yield the parts of a step's batch as (epoch, window, positions in the window)."""
        position, end = step * self.batch_size, (step + 1) * self.batch_size
        while position < end:
            epoch, within = divmod(position, len(self.rows))
            bounds = self.windows(epoch)[1]
            window = int(np.searchsorted(bounds, within, side="right")) - 1
            n = min(end - position, int(bounds[window + 1]) - within)
            start = within - int(bounds[window])
            yield epoch, window, slice(start, start + n)
            position += n

    def deal_windows(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return an epoch's windows: the shards of each, and the positions of their first rows."""
        shards = np.arange(len(self.rows.split))
        if len(shards) > WINDOW:
            np.random.default_rng([self.seed, epoch]).shuffle(shards)
        windows = [shards[i : i + WINDOW] for i in range(0, len(shards), WINDOW)]
        counts = np.diff(self.rows.first)
        return windows, np.cumsum([0, *(counts[window].sum() for window in windows)])

    def mix_window(self, epoch: int, window: int) -> tuple[Packing, np.ndarray]:
        """Return a window's packing, and its rows in the order in which they are read."""
        windows, bounds = self.windows(epoch)
        documents = np.concatenate([self.rows.documents(i) for i in windows[window].tolist()])
        # numpy treats [seed, epoch, 0] like [seed, epoch], the key of the shards' permutation.
        rng = np.random.default_rng([self.seed, epoch, window + 1])
        documents = documents[rng.permutation(len(documents))]
        following = self.exchanges.follow(documents, rng)
        packing = Packing(documents, self.rows.block_size, following)
        order = rng.permutation(len(packing.table))
        return packing, np.resize(order, bounds[window + 1] - bounds[window])
