"""Batches of encoded sentence pairs.

    >>> from gptcore.text.tokenizer import Tokenizer
    >>> from training.data.pairs.sentences import encode_pairs
    >>> bytes_alone = Tokenizer.train([], 262)
    >>> pairs = [("two", "deux"), ("one", "un")]
    >>> _, encoded = encode_pairs(pairs, bytes_alone, bytes_alone, 128, "to train on")
    >>> source_ids, source_mask, input_ids, attention_mask, targets = (
    ...     PairBatches(encoded, 2).batch(1, step=0)
    ... )
    >>> source_ids.shape, targets.shape
    (torch.Size([2, 4]), torch.Size([2, 5]))

Pairs of similar length share a batch. The pairs of a step are a pure function of (seed, step).
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from training.data.pairs.sentences import Encoded
from training.data.rows import IGNORED
from training.machine.processes import World

POOL = 32  # number of batches whose pairs are sorted by length together


class PairBatches:
    """Batches of encoded pairs; each is padded on the right to its longest pair."""

    def __init__(self, pairs: list[Encoded], batch_size: int):
        self.pairs, self.batch_size = pairs, batch_size
        self.lengths = np.array([(len(target), len(source)) for source, target in pairs])
        self.steps_per_epoch = -(-len(pairs) // batch_size)
        self.n_target_tokens = int(self.lengths[:, 0].sum()) - len(pairs)
        self.epoch = lru_cache(maxsize=2)(self.shuffle)

    def shuffle(self, seed: int, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch as indices into the pairs.

        The pairs are shuffled, sorted by length within pools, and cut into batches, which are
        shuffled in turn.
        """
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(self.pairs))
        batches = []
        for first in range(0, len(order), POOL * self.batch_size):
            pool = order[first : first + POOL * self.batch_size]
            pool = pool[np.lexsort(self.lengths[pool].T)]
            batches += np.split(pool, range(self.batch_size, len(pool), self.batch_size))
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, seed: int, step: int, world: World = World()) -> tuple[Tensor, ...]:
        epoch, within = divmod(step, self.steps_per_epoch)
        return collate([self.pairs[i] for i in world.part(self.epoch(seed, epoch)[within])])

    def __iter__(self):
        """Yield batches of all pairs, once, in order."""
        for first in range(0, len(self.pairs), self.batch_size):
            yield collate(self.pairs[first : first + self.batch_size])


def collate(pairs: list[Encoded]) -> tuple[Tensor, ...]:
    """Return source ids and mask, target inputs and mask, and targets, each (B, longest)."""
    source_ids, source_mask = pad([source for source, _ in pairs], 0)
    input_ids, attention_mask = pad([target[:-1] for _, target in pairs], 0)
    targets, _ = pad([target[1:] for _, target in pairs], IGNORED)
    return source_ids, source_mask, input_ids, attention_mask, targets


def pad(rows: list[np.ndarray], filler: int) -> tuple[Tensor, Tensor]:
    """Return ids padded on the right and the mask of the real ones, each (B, longest)."""
    longest = max(map(len, rows), default=1)
    ids = np.full((len(rows), longest), filler, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)
