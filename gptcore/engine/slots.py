"""Slots: what several conversations have read, and their keys and values.

>>> slots = Slots(ServingCache(inference, config, 8), config)        # doctest: +SKIP
>>> slots.read(0, [5, 8, 13])                                        # doctest: +SKIP
array([[...]])
>>> slots.step([21])  # one more token for each of the first slots   # doctest: +SKIP

Two caches have the same methods. ServingCache keeps all slots in one buffer that the serving graph
(export/formats/serving.py) extends in place, and reads a token for many slots at once. GrowingCache
runs the portable graph, one slot after the other; every folder has that graph.
"""

import math
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.feeds import PAST, PRESENT, Arrays, cache_shapes, no_cache, token_feeds

MAP_NORESERVE = 0x4000  # Linux: memory is taken as it is written, however large the whole is
NO_ID = -1  # in Slots.ids, after what a slot has read


class Cache(Protocol):
    """The keys and values of `n_slots` slots; V is the size of the vocabulary."""

    n_slots: int

    def read(self, slot: int, ids: Sequence[int], past: int, first: int) -> np.ndarray:
        """Read T ids after `past` positions; return logits (n, V) from the token `first` on."""

    def step(self, ids: Sequence[int], pasts: np.ndarray) -> np.ndarray:
        """Read one id in each of the first slots, after `pasts` (n,) positions; return (n, V).

        The result is valid until the next call.
        """

    def swap(self, a: int, b: int, length: int) -> None:
        """Exchange the first `length` positions of two slots."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a slot."""


class Slots:
    """The ids that each slot has read, beside the cache of their keys and values."""

    def __init__(self, cache: Cache, config: ModelConfig):
        self.cache, self.block_size = cache, config.block_size
        self.ids = np.full((cache.n_slots, config.block_size), NO_ID, np.int32)
        self.lengths = np.zeros(cache.n_slots, np.int32)
        self.n_read = 0  # tokens computed so far

    def shared(self, ids: Sequence[int]) -> np.ndarray:
        """Return how many leading ids each slot (n_slots,) shares with a prompt."""
        prompt = np.array(ids[: self.block_size], np.int32)
        equal = self.ids[:, : len(prompt)] == prompt
        return np.where(equal.all(1), len(prompt), equal.argmin(1))

    def read(self, slot: int, ids: Sequence[int], first: int = -1) -> np.ndarray:
        """Read ids after what the slot has read; return logits (n, V) from the token `first` on."""
        past = int(self.lengths[slot])
        logits = self.cache.read(slot, ids, past, first)
        self.ids[slot, past : past + len(ids)] = ids
        self.lengths[slot] += len(ids)
        self.n_read += len(ids)
        return logits

    def step(self, ids: Sequence[int]) -> np.ndarray:
        """Read one id in each of the first n slots; return the logits (n, V) of the next."""
        n, pasts = len(ids), self.lengths[: len(ids)]
        logits = self.cache.step(ids, pasts)
        self.ids[np.arange(n), pasts] = ids
        pasts += 1
        self.n_read += n
        return logits

    def cut(self, slot: int, length: int) -> None:
        """Forget all that a slot has read but the first `length` ids."""
        self.ids[slot, length:] = NO_ID
        self.lengths[slot] = min(self.lengths[slot], length)

    def swap(self, a: int, b: int) -> None:
        """Exchange the content of two slots."""
        if a == b:
            return
        pair, swapped = [a, b], [b, a]
        self.cache.swap(a, b, int(self.lengths[pair].max()))
        self.ids[pair] = self.ids[swapped]
        self.lengths[pair] = self.lengths[swapped]

    def copy(self, source: int, target: int, length: int) -> None:
        """Let a slot hold the first `length` ids of another, and nothing else."""
        self.cache.copy(source, target, length)
        self.ids[target] = self.ids[source]
        self.lengths[target] = self.lengths[source]
        self.cut(target, length)


class ServingCache:
    """One buffer for all slots, which the serving graph reads and extends where it lies."""

    def __init__(self, inference: ort.InferenceSession, config: ModelConfig, n_slots: int):
        self.inference, self.n_slots = inference, n_slots
        size = config.n_kv_head, config.block_size, config.head_dim
        self.buffer = untouched_zeros((2 * config.n_layer, n_slots, *size))
        self.past_names = [*cache_shapes(inference)]
        self.has_positions = "position_ids" in [i.name for i in inference.get_inputs()]
        self.ids = np.zeros((n_slots, 1), np.int64)
        self.positions = np.zeros((n_slots, 1), np.int64)
        self.last = np.zeros(n_slots, np.int32)
        self.total = np.zeros((), np.int32)
        self.first = np.full(1, -1, np.int64)
        self.logits = np.zeros((n_slots, config.vocab_size), np.float32)
        self.bindings: dict[int, Any] = {}  # by number of rows

    def read(self, slot: int, ids: Sequence[int], past: int, first: int) -> np.ndarray:
        n = len(ids)
        feeds: Arrays = {
            "input_ids": np.array([ids], np.int64),
            "position_ids": np.arange(past, past + n, dtype=np.int64)[None],
            "last_positions": np.array([past + n - 1], np.int32),
            "total_sequence_length": np.array(past + n, np.int32),
            "first_logits": np.array([first], np.int64),
        }
        binding = self.bind(feeds, slot, 1)
        binding.bind_output("logits", "cpu")
        self.inference.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()[0]

    def step(self, ids: Sequence[int], pasts: np.ndarray) -> np.ndarray:
        n = len(ids)
        self.ids[:n, 0] = ids
        self.positions[:n, 0] = pasts
        self.last[:n] = pasts
        self.total[...] = pasts.max() + 1
        if n not in self.bindings:
            self.bindings[n] = self.bind_step(n)
        self.inference.run_with_iobinding(self.bindings[n])
        return self.logits[:n]

    def bind_step(self, n: int) -> Any:
        """Bind memory that is written anew for each step: binding takes longer than running."""
        feeds: Arrays = {
            "input_ids": self.ids[:n],
            "position_ids": self.positions[:n],
            "last_positions": self.last[:n],
            "total_sequence_length": self.total,
            "first_logits": self.first,
        }
        binding = self.bind(feeds, 0, n)
        shape = (n, 1, self.logits.shape[1])
        pointer = self.logits.ctypes.data
        binding.bind_output("logits", "cpu", 0, np.float32, shape, pointer)
        return binding

    def bind(self, feeds: Arrays, slot: int, n: int) -> Any:
        """Bind the inputs, and the cache of `n` slots as input and as output."""
        if not self.has_positions:
            del feeds["position_ids"]
        binding = self.inference.io_binding()
        for name, array in feeds.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, layer in zip(self.past_names, self.buffer):
            part = layer[slot : slot + n]
            place = "cpu", 0, part.dtype, part.shape, part.ctypes.data
            binding.bind_input(name, *place)
            binding.bind_output(name.replace(PAST, PRESENT), *place)
        return binding

    def swap(self, a: int, b: int, length: int) -> None:
        for layer in self.buffer:  # one at a time, since both slots are copied on the way
            layer[[a, b], :, :length] = layer[[b, a], :, :length]

    def copy(self, source: int, target: int, length: int) -> None:
        self.buffer[:, target, :, :length] = self.buffer[:, source, :, :length]


def untouched_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros whose pages take memory only once they are written.

    np.zeros asks for pages of 2 MB: in each the first token would take the place of a thousand.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if os.name == "posix" else 0
    flags |= MAP_NORESERVE if sys.platform == "linux" else 0
    n_bytes = 4 * math.prod(shape)
    try:
        memory = mmap.mmap(-1, n_bytes, **({"flags": flags} if flags else {}))
    except OSError:
        raise UserError(
            f"there is no memory for the keys and values of one whole context, "
            f"{n_bytes / 1e9:.1f} GB: export the model with a smaller --context"
        ) from None
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # Linux
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)


class GrowingCache:
    """One cache for each slot, which the portable graph returns one token longer at each step."""

    def __init__(self, inference: ort.InferenceSession, config: ModelConfig, n_slots: int):
        self.inference, self.n_slots = inference, n_slots
        self.past_names = [*cache_shapes(inference)]
        self.output_names = [o.name for o in inference.get_outputs()]
        self.caches: list[list] = [no_cache(config)] * n_slots
        on_cpu = inference.get_providers()[0] == "CPUExecutionProvider"
        self.device = "cpu" if on_cpu else "cuda"

    def read(self, slot: int, ids: Sequence[int], past: int, first: int) -> np.ndarray:
        feeds = token_feeds(np.array([ids], np.int64), past)
        past_values = [first_positions(value, past) for value in self.caches[slot]]
        run = self.run_numpy if self.device == "cpu" else self.run_bound
        logits, self.caches[slot] = run(feeds, past_values)
        return logits[0, first:]

    def step(self, ids: Sequence[int], pasts: np.ndarray) -> np.ndarray:
        rows = enumerate(zip(ids, pasts.tolist()))
        return np.concatenate([self.read(slot, [i], past, -1) for slot, (i, past) in rows])

    def run_numpy(self, feeds: dict, past: list) -> tuple[np.ndarray, list]:
        """Run with numpy arrays, which is fastest on the CPU."""
        feeds |= zip(self.past_names, past)
        logits, *cache = self.inference.run(self.output_names, feeds)
        return logits, cache

    def run_bound(self, feeds: dict, past: list) -> tuple[np.ndarray, list]:
        """Run with the cache kept on the GPU: only ids are copied to it and logits back."""
        binding = self.inference.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, value in zip(self.past_names, past):
            if isinstance(value, np.ndarray):
                value = ort.OrtValue.ortvalue_from_numpy(value, self.device, 0)
            binding.bind_ortvalue_input(name, value)
        binding.bind_output(self.output_names[0], "cpu")
        for name in self.output_names[1:]:
            binding.bind_output(name, self.device)
        self.inference.run_with_iobinding(binding)
        logits, *cache = binding.get_outputs()
        return logits.numpy(), cache

    def swap(self, a: int, b: int, length: int) -> None:
        self.caches[a], self.caches[b] = self.caches[b], self.caches[a]

    def copy(self, source: int, target: int, length: int) -> None:
        self.caches[target] = self.caches[source]  # arrays are never changed


def first_positions(value: Any, length: int) -> Any:
    """Return the first `length` positions of keys or values (1, K, P, D), an array or on a GPU."""
    shape = value.shape() if isinstance(value, ort.OrtValue) else value.shape
    if shape[2] == length:
        return value
    array = value.numpy() if isinstance(value, ort.OrtValue) else value
    return np.ascontiguousarray(array[:, :, :length])
