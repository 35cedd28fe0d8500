"""Sentence pairs to batches: a .tsv (or .gz of it) with source, tab, target on each line.

    >>> pairs = read_pairs(Path("pairs.tsv.gz"), reverse=False)          # doctest: +SKIP
    >>> batches = PairBatches(encode_pairs(pairs, source, target, 128), 64)   # doctest: +SKIP
    >>> source_ids, source_mask, input_ids, attention_mask, targets = batches.batch(1, step=0)

Pairs of like length share a batch, and which pairs a step sees depends on (seed, step) alone.
"""

import gzip
import hashlib
import math
import zlib
from functools import lru_cache
from itertools import compress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gptcore.checks import UserError
from gptcore.tokenizer import Tokenizer
from gptcore.translate import encode_source, target_ends
from training.data.batches import IGNORED
from training.data.corpus import open_text
from training.machine.processes import World

Pair = tuple[str, str]  # source, target
Encoded = tuple[list[int], list[int]]

VALIDATION_SHARE, MAX_VALIDATION = 0.02, 500
POOL = 32  # number of batches whose pairs are sorted by length together


def read_pairs(path: Path, reverse: bool = False) -> list[Pair]:
    """Source and target of each line; `reverse` swaps them; further columns are left out.

    UserError names the line that has no tab or an empty side.
    """
    if not path.is_file():
        raise UserError(f"{path} is not a file: name one with source, tab, target on each line")
    pairs = []
    try:
        with open_text(path) as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                columns = [column.strip() for column in line.rstrip("\n").split("\t")]
                if len(columns) < 2:
                    raise UserError(
                        f"{path}, line {number}: the line has no tab; write source, tab, target"
                    )
                if not (columns[0] and columns[1]):
                    raise UserError(f"{path}, line {number}: one side is empty; drop the line")
                pairs.append((columns[1], columns[0]) if reverse else (columns[0], columns[1]))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}): convert it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file: {error}") from None
    if not pairs:
        raise UserError(f"{path} holds no pairs: write source, tab, target on each line")
    return pairs


def write_pairs(pairs: list[Pair], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")


def split_pairs(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Training and validation; a sentence with several translations is on one side only."""
    share = min(VALIDATION_SHARE, MAX_VALIDATION / len(pairs))

    def number(pair: Pair) -> float:
        digest = hashlib.blake2b(pair[0].encode("utf-8"), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64

    limit = max(share, math.nextafter(min(map(number, pairs)), 1.0))  # at least one
    training = [pair for pair in pairs if number(pair) >= limit]
    if not training:
        raise UserError("all pairs have one and the same source: give some that differ")
    return training, [pair for pair in pairs if number(pair) < limit]


def encode_pairs(
    pairs: list[Pair], source_tokenizer: Tokenizer, tokenizer: Tokenizer, block_size: int
) -> tuple[list[Pair], list[Encoded]]:
    """The pairs that fit into the context, and the ids of both their sides."""
    start, end = target_ends(tokenizer)
    encoded = [
        (encode_source(source, source_tokenizer), [start, *tokenizer.encode(target), end])
        for source, target in pairs
    ]
    fits = [max(len(source), len(target) - 1) <= block_size for source, target in encoded]
    if not any(fits):
        raise UserError(f"every pair is longer than block_size={block_size} tokens: enlarge it")
    return list(compress(pairs, fits)), list(compress(encoded, fits))


class PairBatches:
    """Batches of encoded pairs, padded on the right to the longest in each."""

    def __init__(self, pairs: list[Encoded], batch_size: int):
        self.pairs, self.batch_size = pairs, batch_size
        self.lengths = np.array([(len(target), len(source)) for source, target in pairs])
        self.steps_per_epoch = -(-len(pairs) // batch_size)
        self.n_target_tokens = int(self.lengths[:, 0].sum()) - len(pairs)
        self.epoch = lru_cache(maxsize=2)(self.shuffle)

    def shuffle(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: shuffled, sorted by length within pools, shuffled again."""
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
        """All pairs once, in order."""
        for first in range(0, len(self.pairs), self.batch_size):
            yield collate(self.pairs[first : first + self.batch_size])


def collate(pairs: list[Encoded]) -> tuple[Tensor, ...]:
    """Source ids and mask, target inputs and mask, and targets, each (B, longest)."""
    source_ids, source_mask = pad([source for source, _ in pairs], 0)
    input_ids, attention_mask = pad([target[:-1] for _, target in pairs], 0)
    targets, _ = pad([target[1:] for _, target in pairs], IGNORED)
    return source_ids, source_mask, input_ids, attention_mask, targets


def pad(rows: list[list[int]], filler: int) -> tuple[Tensor, Tensor]:
    """(B, longest) ids padded on the right, and the mask of the real ones."""
    longest = max(map(len, rows), default=1)
    ids = np.full((len(rows), longest), filler, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)
