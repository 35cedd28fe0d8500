"""Which tokens have ids, and what these ids are.

>>> bytes_by_id([b"a", b"b"], [1])
[b'a', b'', b'b']
"""

from collections.abc import Sequence

import numpy as np

from gptcore.checks import UserError


def checked_kept(kept: Sequence[int], n_ranks: int) -> list[int]:
    """Return `kept` as a list; raises UserError unless it is ascending ranks below n_ranks."""
    array = np.asarray(kept)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError("the tokenizer's kept ranks are not a list of whole numbers")
    if (array[1:] <= array[:-1]).any() or (array < 0).any() or (array >= n_ranks).any():
        raise UserError(f"the tokenizer's kept ranks do not ascend within 0 to {n_ranks - 1}")
    return array.tolist()


def bytes_by_id(tokens: list[bytes], taken_ids: list[int]) -> list[bytes]:
    """Return the bytes of every id: taken ids have none, the others take `tokens` in order."""
    taken, result = set(taken_ids), [b""] * (len(tokens) + len(taken_ids))
    if len(taken) != len(taken_ids) or not taken <= set(range(len(result))):
        raise UserError(
            f"the special tokens' ids are not {len(taken_ids)} different ones below {len(result)}"
        )
    free = (i for i in range(len(result)) if i not in taken)
    for i, token in zip(free, tokens):
        result[i] = token
    return result


def ids_of_token(ids: dict[bytes, int], token: bytes) -> tuple[int, ...]:
    """Return the token's own id, or the ids of its single bytes."""
    return (ids[token],) if token in ids else tuple(ids[bytes([byte])] for byte in token)
