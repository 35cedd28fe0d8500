"""Published tokenizers by name, and compact ones with only the tokens that a text uses.

    >>> full = named_encoding("cl100k_base")                             # doctest: +SKIP
    >>> small = compact(full, usage([text], full).used)                  # doctest: +SKIP
    >>> full.vocab_size, small.vocab_size     # of a book of 460 kB      # doctest: +SKIP
    (100262, 3995)

The embeddings of a full vocabulary would be most of a small model's parameters. A compact
vocabulary has the tokens that occur and the 256 single bytes, which can write any other text.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tiktoken

from gptcore.checks import UserError, check_choice
from gptcore.text.tokenizer import Tokenizer
from training.machine.prefetch import in_thread

NAMES = ("cl100k_base", "r50k_base")
CACHE = "TIKTOKEN_CACHE_DIR"
TIMEOUT = 60.0  # seconds to wait for a download


def named_encoding(name: str) -> Tokenizer:
    """Return the tokenizer with one of NAMES, with its own pattern and our special tokens.

    Raises UserError if the name is unknown, or if its ranks are not cached and cannot be fetched.
    """
    check_choice("encoding", name, NAMES)
    try:
        encoding = fetch(name)
    except (OSError, ValueError) as error:  # errors of requests are OSErrors, and so are timeouts
        reason = str(error) or f"no answer in {TIMEOUT:g} seconds"
        raise UserError(
            f"the encoding {name} is not in tiktoken's cache ({CACHE} is "
            f"{os.environ.get(CACHE) or 'not set'}) and could not be downloaded: set {CACHE} to a "
            f"folder that already holds it, or connect to the internet. {reason}"
        ) from None
    return Tokenizer(encoding._mergeable_ranks, encoding._pat_str)


def fetch(name: str) -> tiktoken.Encoding:
    """Return tiktoken's own object; raises TimeoutError after TIMEOUT seconds.

    tiktoken downloads without a timeout, so a proxy that never answers would block it for ever.
    """
    return in_thread(partial(tiktoken.get_encoding, name)).result(TIMEOUT)


@dataclass(frozen=True)
class Usage:
    """The tokens of a vocabulary that some texts use."""

    n_tokens: int
    used: list[int]  # the ids that occur, in ascending order

    @property
    def n_distinct(self) -> int:
        return len(self.used)

    @property
    def largest_id(self) -> int:
        """The largest id used, or -1 if there is none."""
        return max(self.used, default=-1)


def usage(texts: Iterable[str], tokenizer: Tokenizer) -> Usage:
    """Count the tokens that the texts use, in one pass with one text in memory at a time."""
    n_tokens, seen = 0, np.zeros(tokenizer.vocab_size, dtype=bool)
    for text in texts:
        ids = tokenizer.encode(text)
        n_tokens += len(ids)
        seen[ids] = True
    return Usage(n_tokens, np.flatnonzero(seen).tolist())


def compact(tokenizer: Tokenizer, used: Iterable[int]) -> Tokenizer:
    """Return a tokenizer with only the used ids and the 256 single bytes, renumbered in order.

    It encodes a text of used tokens as before. Raises UserError for the id of a special token.
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
