"""Published tokenizers by name, and the part of a vocabulary that a text uses.

    >>> full = named_encoding("cl100k_base")                             # doctest: +SKIP
    >>> small = compact(full, usage([text], full).used)                  # doctest: +SKIP
    >>> full.vocab_size, small.vocab_size     # of a book of 460 kB      # doctest: +SKIP
    (100262, 3995)

A full vocabulary costs a small model most of its parameters: a compact one has rows only for
the tokens that occur, and the single bytes, in which everything else can still be written.
"""

import os
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread

import numpy as np
import tiktoken

from gptcore.checks import UserError, check_choice
from gptcore.text.tokenizer import Tokenizer

NAMES = ("cl100k_base", "r50k_base")
CACHE = "TIKTOKEN_CACHE_DIR"
TIMEOUT = 60.0  # seconds


def named_encoding(name: str) -> Tokenizer:
    """All ranks of one of NAMES, with its own pattern and our special tokens.

    UserError if the name is unknown, or if tiktoken neither has the ranks nor can fetch them.
    """
    check_choice("encoding", name, NAMES)
    try:
        encoding = fetch(name)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors, so is a timeout
        reason = str(error) or f"no answer in {TIMEOUT:g} seconds"
        raise UserError(
            f"the encoding {name} is not in tiktoken's cache ({CACHE} is "
            f"{os.environ.get(CACHE) or 'not set'}) and could not be fetched: set {CACHE} to a "
            f"folder into which tiktoken fetched it before, or go online. {reason}"
        ) from None
    return Tokenizer(encoding._mergeable_ranks, encoding._pat_str)


def fetch(name: str) -> tiktoken.Encoding:
    """tiktoken's own object; TimeoutError after TIMEOUT seconds.

    tiktoken downloads without a timeout, so a silent proxy would hang it for ever. It runs in a
    thread that does not keep the process alive.
    """
    future: Future[tiktoken.Encoding] = Future()

    def work() -> None:
        try:
            future.set_result(tiktoken.get_encoding(name))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future.result(TIMEOUT)


@dataclass(frozen=True)
class Usage:
    """What texts use of a vocabulary."""

    n_tokens: int
    used: list[int]  # the ids that occur, ascending

    @property
    def n_distinct(self) -> int:
        return len(self.used)

    @property
    def largest_id(self) -> int:
        """-1 if there is none."""
        return max(self.used, default=-1)


def usage(texts: Iterable[str], tokenizer: Tokenizer) -> Usage:
    """What the texts use, counted in one pass with one text in memory at a time."""
    n_tokens, seen = 0, np.zeros(tokenizer.vocab_size, dtype=bool)
    for text in texts:
        ids = tokenizer.encode(text)
        n_tokens += len(ids)
        seen[ids] = True
    return Usage(n_tokens, np.flatnonzero(seen).tolist())


def compact(tokenizer: Tokenizer, used: Iterable[int]) -> Tokenizer:
    """A tokenizer with only the used ids and the 256 single bytes, renumbered in the same order.

    It splits a text of used tokens as before. UserError for an id that is not an ordinary token's.
    """
    used = set(used)
    foreign = [i for i in used if not (0 <= i < len(tokenizer.tokens))]
    if foreign:
        raise UserError(
            f"id {min(foreign)} is not an ordinary token's: give ids from 0 to "
            f"{len(tokenizer.tokens) - 1}, as encode yields them"
        )
    kept = {tokenizer.ranks[tokenizer.tokens[i]] for i in used}
    singles = {tokenizer.ranks[bytes([byte])] for byte in range(256)}
    return Tokenizer(tokenizer.ranks, tokenizer.pattern, sorted(kept | singles))
