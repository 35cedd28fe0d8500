"""Blocks of integers: what they keep exactly, how near they come, how ONNX Runtime reads them."""

import gguf
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.quantize.blocks import (
    candidates,
    choose_size,
    dequantize,
    nearest,
    quantize,
    round_to,
)
from export.quantize.calibrate import compensate
from export.quantize.save import multiply_blocks


def matrix(n_in: int, n_out: int) -> np.ndarray:
    """Weights (n_in, n_out) whose blocks have very different sizes; one input has none."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n_in, n_out)) * rng.lognormal(sigma=2, size=n_out) * 0.02
    weights[3] = 0.0
    return weights.astype(np.float32)


@pytest.mark.parametrize(("name", "bits", "shift"), [("Q8_0", 8, 0), ("Q4_0", 4, 8)])
def test_weights_that_were_in_a_gguf_come_back_bit_for_bit(
    name: str, bits: int, shift: int
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    rows = matrix(128, 96).T.copy()
    rows[7] = 0.0
    stored = gguf.quantize(rows, kind)
    weights = gguf.dequantize(stored, kind)
    blocks = quantize(weights.T, bits, 32)
    assert np.array_equal(dequantize(blocks).T, weights)
    scales = stored.reshape(96, 4, -1)[:, :, :2].copy().view(np.float16)[..., 0]
    assert np.array_equal(blocks.scales, scales)
    if name == "Q8_0":
        integers = stored.reshape(96, 4, -1)[:, :, 2:].view(np.int8)
        assert np.array_equal(blocks.integers.astype(int) - 128, integers)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [32, 64, 128])
def test_no_candidate_has_a_smaller_error_than_the_blocks_that_are_kept(
    bits: int, size: int
) -> None:
    """So they are never worse than rounding to nearest, which is the first of them."""
    weights = matrix(size, 200).T.copy()
    error = square_errors(weights, *nearest(weights, bits))
    for scales, zeros in candidates(weights, bits):
        scales = scales.astype(np.float16)
        integers = round_to(weights, scales, zeros, bits)
        assert (error <= square_errors(weights, integers, scales, zeros) * 1.0001).all()


def square_errors(
    weights: np.ndarray, integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray
) -> np.ndarray:
    back = scales[:, None].astype(float) * (integers - zeros[:, None].astype(float))
    return ((back - weights) ** 2).sum(1)


def test_weights_that_were_in_4_bits_come_back_in_8_too() -> None:
    """As values do, which always have 8."""
    kind = gguf.GGMLQuantizationType.Q4_0
    weights = gguf.dequantize(gguf.quantize(matrix(128, 96).T.copy(), kind), kind).T
    assert np.array_equal(dequantize(quantize(weights, 8, 32)), weights)


@pytest.mark.parametrize(
    ("bits", "n_in", "n_out", "size"),
    [
        (8, 1536, 576, 128), (8, 576, 1536, 64), (8, 288, 288, 32), (8, 48, 96, 32),
        (4, 1536, 576, 64), (4, 576, 1536, 64), (4, 288, 96, 32), (4, 48, 96, 32),
    ],
)  # fmt: skip
def test_blocks_are_as_large_as_the_inputs_allow(
    bits: int, n_in: int, n_out: int, size: int
) -> None:
    weights = matrix(n_in, n_out)
    assert choose_size(weights, bits) == size
    kinds = {8: gguf.GGMLQuantizationType.Q8_0, 4: gguf.GGMLQuantizationType.Q4_0}
    padded = np.pad(weights.T, ((0, 0), (0, -n_in % 32)))
    of_gguf = gguf.dequantize(gguf.quantize(padded, kinds[bits]), kinds[bits]).T[:n_in]
    assert choose_size(of_gguf, bits) == 32, "these come back bit for bit"


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_inputs_are_fitted_first(seed: int) -> None:
    """Here they are the last: in the order of the inputs a third or more of the error is left."""
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.lognormal(sigma=2, size=128))
    x = rng.normal(size=(500, 8)) @ rng.normal(size=(8, 128)) + rng.normal(size=(500, 128))
    x = (x * sizes).astype(np.float32)
    weights = matrix(128, 48)
    both = quantize(weights, 4, 32), compensate(weights, x.T @ x, 4, 32)
    errors = [np.square(x @ (dequantize(blocks) - weights)).sum() for blocks in both]
    assert errors[1] < 0.2 * errors[0]


def test_lopsided_weights_are_met_by_the_zero() -> None:
    """Weights from 1 to 1.9 with their ends: a symmetric block would waste half of its integers."""
    weights = np.linspace(-0.1, 1.4, 32, dtype=np.float32)[:, None]
    blocks = quantize(weights, 4, 32)
    assert blocks.zeros[0, 0] < 3
    assert np.abs(dequantize(blocks) - weights).max() < 0.07


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("n_in", [32, 48, 96, 100])
def test_onnx_runtime_multiplies_by_the_very_same_matrix(bits: int, n_in: int) -> None:
    """Also where inputs are no whole number of blocks, or blocks no even number."""
    weights = matrix(n_in, 24)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g",
        [value("x", TensorProto.FLOAT, None)], [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    multiply_blocks(graph, graph.node[0], quantize(weights, bits, 32), n_in, bits)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0  # the inputs are not rounded
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (y,) = ort.InferenceSession(proto.SerializeToString()).run(
        None, {"x": np.eye(n_in, dtype=np.float32)}
    )
    expected = dequantize(quantize(weights, bits, 32))[:n_in]
    np.testing.assert_allclose(y, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("n_in", [64, 100])
def test_what_a_matrix_computes_is_nearer_than_rounded_alone(n_in: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 20)) @ rng.normal(size=(20, n_in))  # inputs that go together
    x = (x + 0.3 * rng.normal(size=x.shape)).astype(np.float32)
    weights = matrix(n_in, 48)
    plain = dequantize(quantize(weights, 4, 32))[:n_in]
    fitted = dequantize(compensate(weights, x.T @ x, 4, 32))[:n_in]
    errors = [np.square(x @ (found - weights)).sum() for found in (plain, fitted)]
    assert errors[1] < 0.5 * errors[0]


def test_weights_that_were_in_4_bits_stay_as_they_are_when_fitted() -> None:
    kind = gguf.GGMLQuantizationType.Q4_0
    weights = gguf.dequantize(gguf.quantize(matrix(128, 96).T.copy(), kind), kind).T
    x = np.random.default_rng(0).normal(size=(300, 128)).astype(np.float32)
    assert np.array_equal(dequantize(compensate(weights, x.T @ x, 4, 32)), weights)
