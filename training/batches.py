"""Token shards to batches; which rows a step sees is a pure function of (seed, step).

A row is block_size tokens and the token after each. Rows begin where documents begin, so a
conversation is seen from its start; a document longer than a row goes on in the next one.

    >>> rows = Rows(shards, "train", block_size=512)                     # doctest: +SKIP
    >>> x, y = rows.batch(rows.order(seed=1, step=0, batch_size=32))     # doctest: +SKIP
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gptcore.chat import loss_mask
from gptcore.checks import UserError
from training.shards import Shards

IGNORED = -100  # the target that cross_entropy leaves out


class Rows:
    """The rows of one split.

    Each row is (shard, context, start, fresh): it covers the ids from `start`; to know which
    of them are the assistant's one must read from `context`, the start of its conversation;
    and its first `fresh` targets are not in the next row again.
    """

    def __init__(self, shards: Shards, split: str, block_size: int):
        self.tokenizer, self.block_size = shards.tokenizer, block_size
        self.split = shards.split(split)
        self.roles = [shards.tokenizer.special[f"<|{r}|>"] for r in ("system", "user", "assistant")]
        n_tokens = sum(len(ids) for ids, _ in self.split)
        if split == "train" and not (block_size < n_tokens):
            raise UserError(
                f"the corpus is too short: {n_tokens} tokens to train on, and a block needs "
                f"block_size={block_size} and one more; give more text or a smaller block_size"
            )
        tables = [self.table(i, *shard) for i, shard in enumerate(self.split)]
        self.rows = np.concatenate(tables)

    def table(self, shard: int, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(n_rows, 4) int64, the rows of one shard."""
        rows, at, end = [], 0, len(ids)
        while at + 1 < end:
            first, last = np.searchsorted(starts, [at, at + self.block_size], side="right")
            # A document that begins inside this row and does not end there begins the next.
            following = int(starts[last - 1]) if last > first else at + self.block_size
            document = int(starts[first - 1])
            is_chat = ids[document + 1] in self.roles
            context = document if is_chat else at
            rows.append((shard, context, at, min(following, end - 1) - at))
            at = following
        return np.array(rows, np.int64).reshape(-1, 4)

    def __len__(self) -> int:
        return len(self.rows)

    def order(self, seed: int, step: int, batch_size: int) -> np.ndarray:
        """(batch_size,) which rows this step reads: a new permutation every epoch."""
        positions = step * batch_size + np.arange(batch_size)
        epochs, within = np.divmod(positions, len(self))
        return np.array([permutation(len(self), seed, int(e))[w] for e, w in zip(epochs, within)])

    def batch(self, which: np.ndarray, fresh_only: bool = False) -> tuple[Tensor, Tensor]:
        """Inputs and targets, each (B, T) int64; targets that carry no loss are IGNORED.

        With `fresh_only`, targets that the next row repeats are IGNORED too, so that a pass
        over all rows counts each token once.
        """
        T = self.block_size
        x = np.full((len(which), T), self.tokenizer.special["<|pad|>"], np.int64)
        y = np.full((len(which), T), IGNORED, np.int64)
        for i, (shard, context, start, fresh) in enumerate(self.rows[which]):
            ids = np.asarray(self.split[shard][0][context : start + T + 1], np.int64)
            mask = loss_mask(ids, self.tokenizer)[start - context :]
            ids = ids[start - context :]
            n = len(ids) - 1
            x[i, :n] = ids[:-1]
            y[i, :n] = np.where(mask[1:], ids[1:], IGNORED)
            if fresh_only:
                y[i, fresh:] = IGNORED
        return torch.from_numpy(x), torch.from_numpy(y)


@lru_cache(maxsize=2)
def permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(n)
