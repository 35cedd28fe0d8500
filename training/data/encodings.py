"""Published tokenizers by name, and compact ones with only the tokens that a text uses.

    >>> full = named_encoding("cl100k_base")                             # doctest: +SKIP
    >>> small = compact(full, np.flatnonzero(count_ids([text], full)))   # doctest: +SKIP
    >>> full.vocab_size, small.vocab_size     # of a book of 460 kB      # doctest: +SKIP
    (100262, 3995)

The embeddings of a full vocabulary would be most of a small model's parameters. A compact
vocabulary has the tokens that occur and the 256 single bytes, which can write any other text.
"""

import os
from collections.abc import Iterable
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


def count_ids(texts: Iterable[str], tokenizer: Tokenizer) -> np.ndarray:
    """Return how often the texts use each id, (vocab_size,), with one text in memory at a time."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for text in texts:
        np.add.at(counts, tokenizer.encode(text), 1)
    return counts


def compact(encoding: Tokenizer, used: Iterable[int]) -> Tokenizer:
    """Return a tokenizer with only the used ids and the 256 single bytes, renumbered in order.

    It encodes a text of used tokens as before. The encoding is whole: its ids are its ranks.
    """
    singles = (encoding.ranks[bytes([byte])] for byte in range(256))
    return Tokenizer(encoding.ranks, encoding.pattern, sorted({*used, *singles}))
