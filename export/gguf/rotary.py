"""How llama.cpp rotates queries and keys: neighbouring rows together, and Llama 3 by factors.

gptcore and transformers rotate rows i and i + head_dim / 2 of a head together. So a Llama's query
and key matrices have their rows in another order in a GGUF file.

>>> matrix = np.arange(8.0).reshape(8, 1)
>>> interleaved(matrix, n_head=2).ravel().tolist()
[0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
>>> np.array_equal(in_halves(interleaved(matrix, n_head=2), n_head=2), matrix)
True
"""

import numpy as np

from gptcore.checks import UserError
from gptcore.config import ModelConfig

FACTORS = "rope_freqs.weight"  # the tensor of a Llama 3


def interleaved(array: np.ndarray, n_head: int) -> np.ndarray:
    """Interleave the rows of each head of (n_head * head_dim, C).

    Row i of the first half is then followed by row i of the second half.
    """
    halves = array.reshape(n_head, 2, -1, array.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def in_halves(array: np.ndarray, n_head: int) -> np.ndarray:
    """Undo `interleaved`; raises UserError if the matrix cannot have so many heads."""
    if array.ndim != 2 or len(array) % (2 * n_head):
        raise UserError(f"a matrix of {array.shape} cannot have {n_head} heads")
    pairs = array.reshape(n_head, -1, 2, array.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def frequency_factors(config: ModelConfig) -> np.ndarray:
    """Return the factors (D / 2,), fp32, by which llama.cpp divides each rotary frequency.

    The formula is the one of gptcore.nn.layers.Llama3Rotary (the published code of Llama 3.1).
    """
    half = np.arange(0, config.head_dim, 2) / config.head_dim
    turns = config.rope_context * config.rope_theta**-half / (2 * np.pi)
    kept = (turns - config.rope_slow) / (config.rope_fast - config.rope_slow)
    kept = kept.clip(0.0, 1.0)
    return (1 / (kept + (1 - kept) / config.rope_factor)).astype(np.float32)
