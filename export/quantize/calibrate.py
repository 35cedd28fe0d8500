"""Chooses 4-bit integers by what a matrix computes on real text: GPTQ (arXiv 2210.17323).

The weights of one input are rounded after those of another, the largest inputs first, and each
one's error is made good by the inputs that are not rounded yet. The second moments of the products'
inputs on some text say how much one input can stand in for another.

    >>> moments = next(second_moments(Path("model.onnx"), [["mul_96"]], rows))  # doctest: +SKIP
    >>> blocks = compensate(matrix, moments["mul_96"], bits=4, size=32)  # doctest: +SKIP
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import torch

from export.formats.feeds import prompt_feeds
from export.formats.graph import border, part_of
from export.quantize.blocks import Blocks, nearest, round_to
from gptcore.engine.onnx_session import open_inference
from gptcore.system.cores import n_cores
from training.machine.progress import progress

DAMPING = 0.01  # of the mean of the moments' diagonal is added to it
TOGETHER = 2e8  # bytes of inputs that are added to the moments at once, which may be larger
STRIDE = 64  # inputs; what their errors change beyond them is computed for all at once


def second_moments(
    path: Path, groups: Sequence[Sequence[str]], rows: Sequence[np.ndarray]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the second moments of each group of values of a graph, on rows of ids (T,).

    They are sums of x x^T, (n, n) fp32, of values x (..., n), and valid until the next group's.
    What a group has computed is kept where the groups after it begin, so no layer runs twice.
    """
    graph = onnx.load(path, load_external_data=False).graph
    given: list[dict[str, np.ndarray]] = [{} for _ in rows]  # of each row
    for i, group in enumerate(groups):
        now = [*group, *(groups[i + 1][:1] if i + 1 < len(groups) else ())]
        kept = border(graph, now, chain(*groups[i + 1 :]), given[0].keys())
        names = list(dict.fromkeys(n for n in (*group, *kept) if n not in given[0]))
        types = {name: value.dtype for name, value in given[0].items()}
        content = part_of(path, names, types)
        session = open_inference(path, threads=n_cores(), content=content)
        read = {value.name for value in session.get_inputs()}
        moments: dict[str, np.ndarray] = {}
        pending: dict[str, list[np.ndarray]] = {name: [] for name in group}
        for at, ids in enumerate(progress(rows, "reading text to fit 4 bits to", unit=" rows")):
            values = {name: value for name, value in given[at].items() if name in read}
            found = session.run(names, prompt_feeds(session, ids) | values)
            values = given[at] | dict(zip(names, found))
            for name, inputs in pending.items():
                inputs.append(values[name].reshape(-1, values[name].shape[-1]))
            n_bytes = sum(x.nbytes for inputs in pending.values() for x in inputs)
            if n_bytes >= TOGETHER or at == len(rows) - 1:
                for name, inputs in pending.items():
                    x = np.concatenate(inputs)
                    moments.setdefault(name, np.zeros((x.shape[1],) * 2, x.dtype))
                    moments[name] += x.T @ x
                    inputs.clear()
            # Copies: what a session returns keeps all of its memory alive.
            given[at] = {name: values[name].copy() for name in kept}
        del session
        yield moments
        moments.clear()


def compensate(matrix: np.ndarray, moments: np.ndarray, bits: int, size: int) -> Blocks:
    """Quantise (n_in, n_out) for inputs with these second moments (n_in, n_in).

    The largest inputs come first, when most others can still make good their errors. So scales and
    zeros are chosen before all of them, by what the rest of an error will cost.
    """
    padding = -len(matrix) % size
    weights = np.pad(matrix, ((0, padding), (0, 0)))  # (n, n_out)
    moments = np.pad(moments, (0, padding))
    order = np.argsort(-np.diag(moments), kind="stable")
    inverse = root_of_inverse(moments[np.ix_(order, order)])
    costs = np.empty(len(order), np.float32)
    costs[order] = np.diag(inverse) ** -2
    found = [
        nearest(weights[at : at + size].T, bits, costs[at : at + size])
        for at in range(0, len(order), size)
    ]
    integers, scales, zeros = (np.stack(parts, 1) for parts in zip(*found))

    def of_weights(part: np.ndarray) -> np.ndarray:
        return np.repeat(part.T.astype(np.float32), size, 0)[order]  # (n, n_out)

    fitted = np.empty(weights.shape, np.uint8)
    fitted[order] = fit(weights[order], inverse, of_weights(scales), of_weights(zeros), bits)
    return Blocks(fitted.T.reshape(integers.shape), scales, zeros)


def fit(
    weights: np.ndarray, inverse: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int
) -> np.ndarray:
    """Return integers (n, n_out) for weights of the same shape, which are changed.

    inverse: (n, n), see root_of_inverse; scales, zeros: (n, n_out), those of each weight.
    """
    integers = np.empty(weights.shape, np.uint8)
    for start in range(0, len(weights), STRIDE):
        part = slice(start, min(start + STRIDE, len(weights)))
        errors = np.empty_like(weights[part])
        for at in range(part.start, part.stop):
            scale, zero, left = scales[at], zeros[at], weights[at : part.stop]
            integers[at] = round_to(left[:1].T, scale, zero, bits)[:, 0]
            error = (left[0] - scale * (integers[at] - zero)) / inverse[at, at]
            left -= np.outer(inverse[at, at : part.stop], error)
            errors[at - start] = error
        weights[part.stop :] -= inverse[part, part.stop :].T @ errors
    return integers


def root_of_inverse(moments: np.ndarray) -> np.ndarray:
    """Return the upper triangular U with U^T U = (moments + damping)^-1, fp32.

    With the last input first, moments = L L^T; then U is the inverse of L, turned round.
    """
    # In place, as wide matrices' moments take gigabytes; LAPACK wants columns together.
    damped = torch.from_numpy(moments[::-1, ::-1].astype(np.float64, order="F"))
    damped.diagonal().add_(DAMPING * damped.diagonal().mean() or 1.0)
    lower = torch.linalg.cholesky(damped, out=damped)
    inverse = torch.eye(len(lower), dtype=lower.dtype).T
    torch.linalg.solve_triangular(lower, inverse, upper=False, out=inverse)
    return inverse.float().flip(0, 1).numpy()
