"""An engine over a made-up cache, and somebody who reads its replies.

The logits of this cache are a function of all that a slot has read, so that a slot which was
mixed up, or cut at the wrong place, gives another reply.
"""

import time
import zlib
from collections.abc import Sequence
from threading import Event, Semaphore

import numpy as np
from conftest import SECONDS, until

from gptcore.config import ModelConfig
from gptcore.engine.generate import Piece, Reply, Request, generate
from gptcore.engine.sampling import Sampling
from gptcore.engine.scheduler import Engine
from gptcore.engine.slots import Slots
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
V, BLOCK = BYTES.vocab_size, 96
CONFIG = ModelConfig(vocab_size=V, block_size=BLOCK)
WARM = Sampling(temperature=1.0, top_k=0)


def logits_after(ids: list[int]) -> np.ndarray:
    seed = zlib.crc32(np.array(ids, np.int32).tobytes())
    logits = np.random.default_rng(seed).normal(size=V) * 3
    logits[256:] -= 2  # a reply ends after some forty tokens
    return logits.astype(np.float32)


class Made:
    """A cache whose keys and values are the ids themselves."""

    def __init__(self, n_slots: int, seconds: float = 0.0):
        self.n_slots, self.seconds = n_slots, seconds
        self.held = [[] for _ in range(n_slots)]
        self.calls: list[tuple[str, int]] = []  # ("read" or "step", number of ids)
        self.held_at = 0  # number of the call, from 1, that waits until `released` lets it go
        self.released = Semaphore(0)
        self.failing: set[int] = set()  # ids at which the graph raises an error
        self.broken: set[int] = set()  # ids after which no logit is finite

    def read(self, slot: int, ids: Sequence[int], past: int, first: int) -> np.ndarray:
        self.called("read", len(ids))
        self.put(slot, ids, past)
        assert first == -1
        return self.logits(slot)[None]

    def step(self, ids: Sequence[int], pasts: np.ndarray) -> np.ndarray:
        self.called("step", len(ids))
        for slot, (token_id, past) in enumerate(zip(ids, pasts)):
            self.put(slot, [token_id], past)
        return np.stack([self.logits(slot) for slot in range(len(ids))])

    def called(self, kind: str, n: int) -> None:
        self.calls.append((kind, n))
        if len(self.calls) == self.held_at:
            assert self.released.acquire(timeout=SECONDS)
        time.sleep(self.seconds)

    def wait_until_held(self) -> None:
        until(lambda: len(self.calls) == self.held_at)

    def put(self, slot: int, ids: Sequence[int], past: int) -> None:
        if self.failing & {*ids}:
            raise RuntimeError("the graph failed")
        assert 0 <= past <= len(self.held[slot]) and past + len(ids) <= BLOCK
        self.held[slot] = [*self.held[slot][:past], *ids]

    def logits(self, slot: int) -> np.ndarray:
        if self.held[slot][-1] in self.broken:
            return np.full(V, np.nan, np.float32)
        return logits_after(self.held[slot])

    def swap(self, a: int, b: int, length: int) -> None:
        held_a, held_b = self.held[a][:length], self.held[b][:length]
        self.held[a], self.held[b] = held_b, held_a

    def copy(self, source: int, target: int, length: int) -> None:
        self.held[target] = self.held[source][:length]


class Alone:
    """The slow reference: a session that reads everything anew for each token."""

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.ids = list(ids)
        return logits_after(self.ids)

    def step(self, token_id: int) -> np.ndarray:
        return self.prefill([*self.ids, token_id])


class Reader:
    """Somebody who waits for a reply."""

    def __init__(self) -> None:
        self.pieces: list[Piece | Exception] = []
        self.done, self.stop = Event(), Event()

    def __call__(self, piece: Piece | Exception) -> None:
        self.pieces.append(piece)
        if isinstance(piece, Exception) or piece.finish:
            self.done.set()

    def ids(self) -> list[int]:
        """The reply's tokens, when it has ended."""
        assert self.done.wait(SECONDS)
        return [i for piece in self.pieces for i in piece.token_ids]

    @property
    def finish(self) -> str | None:
        assert self.done.wait(SECONDS)
        return self.pieces[-1].finish


def new_engine(n_slots: int, seconds: float = 0.0) -> tuple[Engine, Made]:
    cache = Made(n_slots, seconds)
    return Engine(Slots(cache, CONFIG), BYTES), cache


def ask(engine: Engine, *requests: Request) -> list[Reader]:
    readers = [Reader() for _ in requests]
    for reader, request in zip(readers, requests):
        engine.submit(request, reader.stop, reader)
    return readers


def alone(request: Request) -> list[int]:
    reply = Reply(request, BYTES, BLOCK)
    return [i for piece in generate(Alone(), reply) for i in piece.token_ids]


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def wait_until_idle(engine: Engine) -> None:
    until(lambda: engine.thread is None)
    assert engine.n_running == 0
