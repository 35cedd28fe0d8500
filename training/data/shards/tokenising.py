"""Documents to token ids on all cores, in order.

>>> from gptcore.text.tokenizer import Tokenizer
>>> [made] = tokenise(["Hi"], Tokenizer.train([], 262), "uint16")
>>> made.document, made.ids.tolist(), made.unlearned
('Hi', [256, 39, 72], [])
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain, islice
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from gptcore.system.cores import n_cores
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import document_text, ids_and_unlearned
from training.formats.found import Document

CHUNK_CHARACTERS = 1 << 18  # characters that one worker tokenises at a time
MOST_WORKERS = 61  # Windows waits for no more processes
FEW_CHUNKS = 64  # more are worth the half a second in which processes start
Encoded = tuple[np.ndarray, list[tuple[int, int]]]
OWN = threading.local()  # a worker's tokenizer and dtype


class Tokens(NamedTuple):
    """A document, its ids, and the spans of ids that carry no loss."""

    document: Document
    ids: np.ndarray
    unlearned: list[tuple[int, int]]


def tokenise(documents: Iterable[Document], tokenizer: Tokenizer, dtype: str) -> Iterator[Tokens]:
    """Yield the documents with their ids, in order."""
    n_workers = min(n_cores(), MOST_WORKERS)
    found = chunks(documents)
    begun = list(islice(found, FEW_CHUNKS))
    waiting: deque[tuple[list[Document], Future[list[Encoded]]]] = deque()
    with workers(n_workers, len(begun) == FEW_CHUNKS, tokenizer, dtype) as pool:
        for chunk in chain(begun, found):
            waiting.append((chunk, pool.submit(encode, chunk)))
            if len(waiting) > 2 * n_workers:
                yield from encoded(*waiting.popleft())
        while waiting:
            yield from encoded(*waiting.popleft())


def workers(n: int, are_processes: bool, tokenizer: Tokenizer, dtype: str) -> Executor:
    """Return threads, or processes, which Python's lock does not keep waiting for each other."""
    if are_processes:
        return ProcessPoolExecutor(n, get_context("spawn"), begin, (tokenizer, dtype))
    return ThreadPoolExecutor(n, initializer=begin, initargs=(tokenizer, dtype))


def begin(tokenizer: Tokenizer, dtype: str) -> None:
    OWN.tokenizer, OWN.dtype = tokenizer, dtype


def encode(chunk: list[Document]) -> list[Encoded]:
    # Lists of ids would need twenty times as much memory as arrays.
    found = (ids_and_unlearned(document, OWN.tokenizer) for document in chunk)
    return [(np.array(ids, OWN.dtype), unlearned) for ids, unlearned in found]


def encoded(chunk: list[Document], future: Future[list[Encoded]]) -> Iterator[Tokens]:
    for document, (ids, spans) in zip(chunk, future.result()):
        yield Tokens(document, ids, spans)


def chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield lists of documents of about CHUNK_CHARACTERS, so that a few fit into any memory."""
    chunk, length = [], 0
    for document in documents:
        chunk.append(document)
        length += len(document_text(document))
        if length >= CHUNK_CHARACTERS:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk
