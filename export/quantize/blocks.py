"""Quantises a matrix in blocks of inputs: a scale and a zero for each block of integers.

    >>> blocks = quantize(np.eye(64, dtype=np.float32), bits=8, size=32)
    >>> blocks.integers.shape, blocks.scales.shape
    ((64, 2, 32), (64, 2))

A weight is `scale * (integer - zero)`, as ONNX Runtime's MatMulNBits computes it. The first
candidates are the scales of GGUF's Q4_0 and Q8_0, so weights that were in these formats come back
bit for bit in blocks of their size.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SHRINKS = np.linspace(0.75, 1.05, 7, dtype=np.float32)  # of the step from lowest to highest weight
SHIFTS = (-1, 0, 1)  # of the zero
GGUF_SIZE = 32  # inputs in a block of Q4_0 and Q8_0
TOGETHER = 1 << 24  # weights of which candidates are in memory; a head has hundreds of millions
SOME = 64  # outputs that show whether a matrix was in one of these


class Blocks(NamedTuple):
    """Blocks of a matrix (n_in, n_out); inputs are padded with weights 0 to whole blocks."""

    integers: np.ndarray  # (n_out, n_blocks, size) uint8
    scales: np.ndarray  # (n_out, n_blocks) float16
    zeros: np.ndarray  # (n_out, n_blocks) uint8


def choose_size(matrix: np.ndarray, bits: int) -> int:
    """Return how many inputs of a matrix (n_in, n_out) get one scale.

    The more there are, the faster a product is: by a quarter with 64 in place of 32. That costs
    little quality, but with 4 bits more than 64 do. Weights that a GGUF had in blocks keep these.
    """
    n_in, some = len(matrix), matrix[:, :SOME]
    if np.array_equal(dequantize(quantize(some, bits, GGUF_SIZE))[:n_in], some):
        return GGUF_SIZE
    sizes = (128, 64) if bits == 8 else (64,)
    return next((size for size in sizes if n_in % size == 0), GGUF_SIZE)


def quantize(matrix: np.ndarray, bits: int, size: int) -> Blocks:
    """Quantise (n_in, n_out); with 8 bits the zero is always 128."""
    n_in, n_out = matrix.shape
    step = max(1, TOGETHER // n_in)
    found = []
    for at in range(0, n_out, step):
        rows = np.pad(matrix[:, at : at + step].T, ((0, 0), (0, -n_in % size)))
        found.append(nearest(rows.reshape(-1, size), bits))
    joined = (np.concatenate(parts) for parts in zip(*found))
    return Blocks(*(part.reshape(n_out, -1, *part.shape[1:]) for part in joined))


def dequantize(blocks: Blocks) -> np.ndarray:
    """Return the matrix that is multiplied by, (padded n_in, n_out) fp32."""
    weights = blocks.integers.astype(np.float32) - blocks.zeros[..., None]
    weights *= blocks.scales.astype(np.float32)[..., None]
    return weights.reshape(len(weights), -1).T


def nearest(weights: np.ndarray, bits: int, importance: np.ndarray | None = None) -> Blocks:
    """Return, for weights (n, size), the candidate blocks with the least squared error.

    `importance` (size,) multiplies the squared error of each input's weights.
    """
    n, size = weights.shape
    importance = np.ones(size, np.float32) if importance is None else importance
    best = Blocks(np.zeros((n, size), np.uint8), np.zeros(n, np.float16), np.zeros(n, np.uint8))
    least = np.full(n, np.inf, np.float32)
    for scales, zeros in candidates(weights, bits):
        scales = scales.astype(np.float16)
        integers = round_to(weights, scales, zeros, bits)
        error = integers - zeros[:, None]
        error *= scales.astype(np.float32)[:, None]
        error -= weights
        error *= error
        error = error @ importance
        better = error < least
        least[better] = error[better]
        for old, new in zip(best, (integers, scales, zeros)):
            old[better] = new[better]
    return best


def candidates(weights: np.ndarray, bits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield scales and zeros, (n,) fp32 each, that may suit blocks of weights (n, size)."""
    low, high = weights.min(1), weights.max(1)
    furthest = np.where(high > -low, high, low)
    half, most = 2 ** (bits - 1), 2**bits - 1
    middle = np.full(len(weights), half, np.float32)
    if bits == 8:
        yield np.abs(furthest) / (half - 1), middle
        yield furthest / -8, middle  # of Q4_0: its integers are among those of 8 bits
        return
    yield furthest / -half, middle
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    for shrink in SHRINKS:
        scales = shrink * (high - low) / most
        zeros = np.rint(np.divide(-low, scales, out=np.zeros_like(low), where=scales > 0))
        for shift in SHIFTS:
            yield scales, np.clip(zeros + shift, 0, most)


def round_to(weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int) -> np.ndarray:
    """Return the integers (n, size), as fp32, that come nearest to weights (n, size)."""
    scales = scales.astype(np.float32)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    integers = weights * inverse[:, None]
    np.rint(integers, out=integers)
    integers += zeros[:, None]
    return np.clip(integers, 0, 2**bits - 1, out=integers)


def pack(integers: np.ndarray, bits: int) -> np.ndarray:
    """Pack (..., n) uint8 as MatMulNBits wants them: two of 4 bits in a byte, the first low."""
    if bits == 8:
        return integers
    if integers.shape[-1] % 2:
        integers = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, 1)])
    return integers[..., ::2] | integers[..., 1::2] << 4
