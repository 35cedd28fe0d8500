"""The files of one token shard: read a slice at a time, written a document at a time.

>>> shard[: shard.starts[1]]  # the first document's ids             # doctest: +SKIP
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.checks import UserError

SHARD_TOKENS = 1 << 26  # maximum tokens of a shard


@dataclass(frozen=True)
class Shard:
    """The ids of one shard; a slice reads them from the file.

    A memory map is not used, because its pages count as memory of the process.
    """

    name: str
    dtype: str
    n_tokens: int
    locate: Callable[[str], Path]  # returns the path of a file by its name
    has_unlearned: bool = False  # replies that are read but not learned

    def __len__(self) -> int:
        return self.n_tokens

    def __getitem__(self, which: slice) -> np.ndarray:
        start, stop, _ = which.indices(self.n_tokens)
        size = np.dtype(self.dtype).itemsize
        path = self.locate(f"{self.name}.bin")
        with open(path, "rb", buffering=0) as file:
            file.seek(start * size)
            data = file.read(max(stop - start, 0) * size)
        if len(data) < (stop - start) * size:
            raise UserError(f"{path} was cut short while it was in use")
        return np.frombuffer(data, self.dtype)

    @property
    def starts(self) -> np.ndarray:
        """The index at which each document begins."""
        return np.load(self.locate(f"{self.name}.starts.npy"))

    @cached_property
    def unlearned(self) -> np.ndarray:
        """The spans of ids (n, 2) that carry no loss, in order; most shards have none."""
        if not self.has_unlearned:
            return np.zeros((0, 2), np.int64)
        return np.load(self.locate(f"{self.name}.unlearned.npy"))

    def hidden(self, start: int, stop: int) -> np.ndarray:
        """Return a mask (stop - start,) of the ids from start to stop that carry no loss."""
        mask = np.zeros(stop - start, bool)
        first = np.searchsorted(self.unlearned[:, 1], start, side="right")
        last = np.searchsorted(self.unlearned[:, 0], stop)
        for begin, end in self.unlearned[first:last].tolist():
            mask[max(begin - start, 0) : end - start] = True
        return mask


class ShardWriter:
    """Writes the documents of one split; each document is in one shard.

    `only`: the number of a shard that holds them all; the next number is that of another piece.
    """

    def __init__(self, folder: Path, split: str, only: int | None = None):
        self.folder, self.split, self.only = folder, split, only
        self.shards: list[str] = []
        self.n_tokens = 0
        self.open_shard()

    def open_shard(self) -> None:
        self.shards.append(f"{self.split}-{(self.only or 0) + len(self.shards):05d}")
        self.file = open(self.folder / f"{self.shards[-1]}.bin", "wb")
        self.starts = array("q")
        self.unlearned: list[tuple[int, int]] = []
        self.length = 0

    def close_shard(self) -> None:
        self.file.close()
        if not self.length:
            (self.folder / f"{self.shards.pop()}.bin").unlink()
            return
        np.save(self.folder / f"{self.shards[-1]}.starts.npy", np.frombuffer(self.starts, np.int64))
        unlearned = self.folder / f"{self.shards[-1]}.unlearned.npy"
        unlearned.unlink(missing_ok=True)  # of another text that was written here before
        if self.unlearned:
            np.save(unlearned, np.array(self.unlearned, np.int64))
        self.n_tokens += self.length

    def add(self, ids: np.ndarray, unlearned: list[tuple[int, int]]) -> None:
        """Append a document, with the spans of its ids that carry no loss."""
        is_full = self.length + len(ids) > SHARD_TOKENS
        if self.only is None and self.length and is_full:
            self.close_shard()
            self.open_shard()
        self.starts.append(self.length)
        self.unlearned += [(self.length + start, self.length + stop) for start, stop in unlearned]
        self.file.write(ids.tobytes())
        self.length += len(ids)

    def finish(self) -> dict[str, Any]:
        self.close_shard()
        return {"shards": self.shards, "n_tokens": self.n_tokens}
