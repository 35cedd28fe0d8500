"""Chooses 4-bit integers by what a matrix computes on real text: GPTQ (arXiv 2210.17323).

Columns of inputs are rounded one after the other, and each one's error is made good by the inputs
that are not rounded yet. How much one input can stand in for another, the second moments of the
products' inputs on some text say.

    >>> moments = second_moments(onnx.load("model.onnx"), rows)          # doctest: +SKIP
    >>> blocks = compensate(matrix, moments["mul_96"], bits=4, size=32)  # doctest: +SKIP
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from export.formats.blocks import Blocks, nearest, round_to
from export.formats.save import save_graph
from gptcore.engine.onnx_session import open_inference
from gptcore.feeds import token_feeds

DAMPING = 0.01  # of the mean of the moments' diagonal is added to it


def second_moments(
    proto: onnx.ModelProto, products: list[onnx.NodeProto], rows: Iterable[np.ndarray]
) -> dict[str, np.ndarray]:
    """Return sums of x x^T, (n_in, n_in) fp32, for the inputs x of `products` on rows of ids."""
    observed = onnx.ModelProto()
    observed.CopyFrom(proto)
    names = list(dict.fromkeys(node.input[0] for node in products))
    del observed.graph.output[:]
    for name in names:
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        observed.graph.output.append(value)
    with tempfile.TemporaryDirectory() as folder:  # a graph in memory is limited to 2 GB
        path = Path(folder) / "observed.onnx"
        save_graph(observed, path)
        session = open_inference(path, threads=os.cpu_count() or 1)
    moments: dict[str, np.ndarray] = {}
    for ids in rows:
        feeds = token_feeds(ids[None])
        for value in session.get_inputs()[len(feeds) :]:
            _, n_head, _, head_dim = value.shape
            feeds[value.name] = np.zeros((1, n_head, 0, head_dim), np.float32)
        for name, x in zip(names, session.run(names, feeds)):
            x = x.reshape(-1, x.shape[-1])
            moments[name] = moments.get(name, 0) + x.T @ x
    return moments


def compensate(matrix: np.ndarray, moments: np.ndarray, bits: int, size: int) -> Blocks:
    """Quantise (n_in, n_out) for inputs with these second moments (n_in, n_in)."""
    n_in = len(matrix)
    padding = -n_in % size
    rows = np.pad(matrix.T, ((0, 0), (0, padding)))  # a copy: errors are added to it
    inverse = root_of_inverse(np.pad(moments.astype(np.float64), (0, padding)))
    found = []
    # An error in the last input of all is made good by none, and costs its square times these.
    costs = np.diag(inverse) ** -2
    for start in range(0, n_in, size):
        block = rows[:, start : start + size]
        blocks = nearest(block, bits, costs[start : start + size])
        scales, zeros = (part.astype(np.float32) for part in blocks[1:])
        errors = np.empty_like(block)
        for i in range(size):
            at = start + i
            integers = round_to(block[:, i : i + 1], scales, zeros, bits)[:, 0]
            blocks.integers[:, i] = integers
            errors[:, i] = (block[:, i] - scales * (integers - zeros)) / inverse[at, at]
            block[:, i:] -= np.outer(errors[:, i], inverse[at, at : start + size])
        rows[:, start + size :] -= errors @ inverse[start : start + size, start + size :]
        found.append(blocks)
    return Blocks(*(np.stack(parts, 1) for parts in zip(*found)))


def root_of_inverse(moments: np.ndarray) -> np.ndarray:
    """Return the upper triangular U with U^T U = (moments + damping)^-1, fp32."""
    mean = np.diag(moments).mean()
    damped = moments + np.eye(len(moments)) * (DAMPING * mean or 1.0)
    return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
