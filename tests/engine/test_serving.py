"""The serving graph: the portable graph's logits, in one buffer for all, and no weight twice."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, numpy_helper
from trained import change_vectors

from export.formats.serving import write_serving
from export.formats.to_onnx import write_decoder
from export.quantize.save import save_quantized
from export.verify.report import TOLERANCE, any_failed
from export.verify.serving import compare_serving, open_exact
from gptcore.bundle import load_bundle
from gptcore.checks import UserError
from gptcore.config import PRESETS, ModelConfig
from gptcore.engine.onnx_session import OnnxSession, open_inference, open_slots
from gptcore.engine.slots import GrowingCache, ServingCache, Slots, untouched_zeros
from gptcore.nn import build_model

SMALL = {"vocab_size": 300, "block_size": 64, "n_layer": 1, "n_embd": 64, "n_inner": 96}
BIASES = {"qkv_bias": True, "out_bias": True, "feed_forward_bias": True, "head_bias": True}
SHAPES = {
    "sinusoidal, post-norm, biases": replace(PRESETS["wayland_post"], **SMALL, n_head=4),
    "llama3_rotary, one key head": ModelConfig(
        **SMALL, n_head=4, n_kv_head=1, position="llama3_rotary", rope_context=32,
        rope_theta=500.0, rope_factor=4.0,
    ),
    "rotary, a key head for each, biases": ModelConfig(
        **SMALL, n_head=2, n_kv_head=2, **BIASES, tied_embeddings=False
    ),
    "learned, gelu": ModelConfig(
        **SMALL, n_head=4, n_kv_head=2, position="learned", feed_forward="gelu", norm="layernorm"
    ),
    "normed queries and keys, wide heads": ModelConfig(
        **SMALL | {"n_layer": 2}, n_head=4, n_kv_head=2, head_size=32, qk_norm=True
    ),
    "annotated": replace(PRESETS["annotated"], **SMALL, n_head=4, n_kv_head=2, n_position=100),
    "learned, heads of eight": ModelConfig(
        **SMALL | {"n_embd": 32}, n_head=4, n_kv_head=2, position="learned"
    ),
}  # fmt: skip
LENGTHS = (1, 5, 17, 40)
N_STEPS = 6
PART = 7


class Pair(NamedTuple):
    """A model with both of its graphs."""

    config: ModelConfig
    portable: Path
    serving: Path

    def slots(self, n: int = len(LENGTHS)) -> Slots:
        return open_slots(open_inference(self.serving), self.config, n)


def write_pair(shape: str, folder: Path) -> Pair:
    """Write both graphs of a model whose biases and norms are not those of a new one."""
    config = SHAPES[shape]
    torch.manual_seed(0)
    network = build_model(config)
    change_vectors(network)
    pair = Pair(config, folder / "model.onnx", folder / "serving.onnx")
    write_decoder(network, pair.portable)
    write_serving(pair.portable, pair.serving, config)
    return pair


@pytest.fixture(scope="module")
def rotary(model_folder: Path) -> Pair:
    """The exported tiny model's: grouped heads."""
    bundle = load_bundle(model_folder)
    return Pair(bundle.config, bundle.variants["fp32"], bundle.serving["fp32"])


# The export of one takes ten seconds.
SLOW_SHAPES = [pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES]


@pytest.fixture(scope="module", params=["the tiny model", *SLOW_SHAPES])
def pair(
    request: pytest.FixtureRequest, rotary: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    if request.param not in SHAPES:
        return rotary
    return write_pair(request.param, tmp_path_factory.mktemp("pair"))


def made_up(config: ModelConfig) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts of different lengths, and the ids (N_STEPS, n) that follow them."""
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, config.vocab_size, n).tolist() for n in LENGTHS]
    return prompts, rng.integers(0, config.vocab_size, (N_STEPS, len(LENGTHS))).tolist()


def read_in_parts(slots: Slots, slot: int, ids: list[int]) -> np.ndarray:
    """The logits (T, V) of all ids."""
    parts = [ids[at : at + PART] for at in range(0, len(ids), PART)]
    return np.concatenate([slots.read(slot, part, first=0) for part in parts])


def all_logits(
    ours: ort.InferenceSession, theirs: ort.InferenceSession, config: ModelConfig
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both graphs' logits, of prompts read in parts, and of rows that step together."""
    prompts, steps = made_up(config)
    slots = open_slots(ours, config, len(prompts))
    sessions = [OnnxSession(theirs, config) for _ in prompts]
    assert isinstance(slots.cache, ServingCache)
    assert isinstance(sessions[0].slots.cache, GrowingCache)
    for slot, (ids, session) in enumerate(zip(prompts, sessions)):
        yield read_in_parts(slots, slot, ids), session.slots.read(0, ids, first=0)
    for ids in steps:
        yield slots.step(ids).copy(), np.stack([s.step(i) for s, i in zip(sessions, ids)])
    assert slots.lengths.tolist() == [n + N_STEPS for n in LENGTHS]


def test_prompts_in_parts_and_unequal_rows_have_the_portable_graphs_logits(pair: Pair) -> None:
    ours, theirs = open_inference(pair.serving), open_inference(pair.portable)
    found = list(all_logits(ours, theirs, pair.config))
    assert len(found) == len(LENGTHS) + N_STEPS
    for got, expected in found:
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert not any_failed(compare_serving(pair.portable, pair.serving, pair.config, TOLERANCE))


def test_a_sum_and_its_norm_are_one_operator(rotary: Pair) -> None:
    kinds = [node.op_type for node in onnx.load(rotary.serving).graph.node]
    n_sums = 2 * rotary.config.n_layer
    assert kinds.count("SkipSimplifiedLayerNormalization") == n_sums
    assert kinds.count("ReduceMean") == kinds.count("Add") == 1, "the embedding's norm stays"
    assert "Skip" not in str([n.op_type for n in onnx.load(rotary.portable).graph.node])


@pytest.mark.parametrize("block_size", [2, 8])
def test_the_comparison_suits_a_context_that_is_shorter_than_its_texts(
    rotary: Pair, block_size: int
) -> None:
    config = replace(rotary.config, block_size=block_size)
    checks = compare_serving(rotary.portable, rotary.serving, config, TOLERANCE)
    assert [check.passed for check in checks] == [True, True] and checks[0].cases > 0


def test_a_row_has_the_same_logits_in_a_crowd_as_alone_to_the_last_bit(pair: Pair) -> None:
    prompts, steps = made_up(pair.config)
    together, alone = pair.slots(), [pair.slots(1) for _ in prompts]
    for slot, (ids, single) in enumerate(zip(prompts, alone)):
        assert np.array_equal(together.read(slot, ids), single.read(0, ids))
    for n in (*range(N_STEPS), 1):
        ids = steps[n % N_STEPS][: 1 + n % 4]  # sometimes of fewer rows
        got = together.step(ids).copy()
        assert np.array_equal(got, np.concatenate([s.step([i]) for s, i in zip(alone, ids)]))


def test_the_context_can_be_filled_to_its_end(pair: Pair) -> None:
    n = pair.config.block_size
    ids = np.random.default_rng(2).integers(0, pair.config.vocab_size, n).tolist()
    slots, session = pair.slots(2), OnnxSession(open_inference(pair.portable), pair.config)
    slots.read(0, ids[: n - 4])
    slots.read(1, ids[:3])
    for token_id in ids[n - 4 :]:
        got = slots.step([token_id, token_id])[0].copy()
    np.testing.assert_allclose(got, session.prefill(ids), rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match=r"GroupQueryAttention|out of (data )?bounds"):
        slots.step([1, 1])


@pytest.mark.parametrize("form", ["serving", "portable"])
def test_swapped_and_copied_slots_hold_what_was_read(rotary: Pair, form: str) -> None:
    path = rotary.serving if form == "serving" else rotary.portable
    inference = open_inference(path)
    slots = open_slots(inference, rotary.config, 3)
    (_, a, b, c), _ = made_up(rotary.config)

    def next_logits(ids: list[int]) -> np.ndarray:
        return open_slots(inference, rotary.config, 1).read(0, ids)

    slots.read(0, a)
    slots.read(1, b)
    slots.swap(0, 1)
    assert slots.ids[0, : len(b)].tolist() == b and slots.lengths.tolist() == [17, 5, 0]
    slots.swap(1, 1)
    slots.swap(2, 1)
    slots.copy(0, 1, 10)
    assert slots.lengths.tolist() == [17, 10, 5] and slots.shared(b).tolist() == [17, 10, 0]
    n_read = slots.n_read
    for slot, ids in enumerate((b, b[:10], a)):
        close(slots.read(slot, c), next_logits([*ids, *c]))
    assert slots.n_read == n_read + 3 * len(c)
    slots.cut(1, 4)
    assert slots.shared(b).tolist() == [17, 4, 0]
    close(slots.read(1, [7, 8]), next_logits([*b[:4], 7, 8]))
    close(slots.read(0, [9]), next_logits([*b, *c, 9]))
    close(slots.step([1, 2, 3])[2], next_logits([*a, *c, 3])[0])


def close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_a_slot_takes_the_memory_of_what_it_has_read_and_not_of_its_context() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    buffer = untouched_zeros((20, 2, 3, 8192, 64))  # 252 MB
    buffer[:, 0, :, :100] = 1
    assert 1_500_000 < resident() - before < 10_000_000
    assert not buffer[:, 1].any() and buffer[:, 0].sum() == 20 * 3 * 100 * 64


@pytest.mark.skipif(sys.platform != "linux", reason="others reserve memory before it is written")
def test_a_long_contexts_cache_may_be_larger_than_memory() -> None:
    assert untouched_zeros((1 << 36,))[-1] == 0  # 275 GB
    with pytest.raises(UserError, match=r"no memory for .* a smaller --context"):
        untouched_zeros((1 << 55,))


def test_rows_of_the_portable_graph_step_one_by_one_to_the_same_end(rotary: Pair) -> None:
    prompts, steps = made_up(rotary.config)
    inference = open_inference(rotary.portable)
    together = open_slots(inference, rotary.config, len(prompts))
    alone = [OnnxSession(inference, rotary.config) for _ in prompts]
    for slot, (ids, session) in enumerate(zip(prompts, alone)):
        assert np.array_equal(together.read(slot, ids)[0], session.prefill(ids))
    for ids in steps:
        expected = np.stack([session.step(i) for session, i in zip(alone, ids)])
        assert np.array_equal(together.step(ids), expected)


# ------------------------------------------------------------------ the file


@pytest.fixture(scope="module", params=["fp32", "q8", "q4"])
def of_variant(
    rotary: Pair, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    """The tiny model in each form that can be served."""
    if request.param == "fp32":
        return rotary
    folder = tmp_path_factory.mktemp(request.param)
    made = Pair(rotary.config, folder / "model.onnx", folder / "serving.onnx")
    save_quantized(rotary.portable, made.portable, request.param)
    write_serving(made.portable, made.serving, made.config)
    return made


def test_weights_in_few_bits_are_served_too(of_variant: Pair) -> None:
    """Without rounding of what is multiplied, of which a hair may make a step."""
    ours, theirs = (open_exact(p) for p in (of_variant.serving, of_variant.portable))
    for got, expected in all_logits(ours, theirs, of_variant.config):
        close(got, expected)
    rounded = of_variant.slots(), open_inference(of_variant.portable)
    for got, expected in all_logits(rounded[0].cache.inference, rounded[1], of_variant.config):
        assert np.abs(got - expected).max() < 0.2


def test_no_weight_is_stored_twice(of_variant: Pair) -> None:
    portable = {t.name: t for t in onnx.load(of_variant.portable).graph.initializer}
    serving = onnx.load(of_variant.serving, load_external_data=False).graph
    content, seen = of_variant.portable.read_bytes(), 0
    for tensor in serving.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            assert len(tensor.raw_data) < 1024 or tensor.name.startswith("rotary."), tensor.name
            continue
        place = {entry.key: entry.value for entry in tensor.external_data}
        assert place["location"] == of_variant.portable.name
        at, length = int(place["offset"]), int(place["length"])
        expected = numpy_helper.to_array(portable[tensor.name]).tobytes()
        assert content[at : at + length] == expected, tensor.name
        seen += length
    weights = (t for name, t in portable.items() if not name.startswith("position."))
    assert seen > 0.9 * sum(len(tensor.raw_data) for tensor in weights)
    tables = sum(len(t.raw_data) for t in serving.initializer if t.name.startswith("rotary."))
    assert of_variant.serving.stat().st_size < tables + 40_000


def test_the_serving_graph_has_the_inputs_of_the_table_and_one_operator_for_attention(
    pair: Pair,
) -> None:
    graph = onnx.load(pair.serving, load_external_data=False).graph
    names = ["input_ids", "position_ids", "last_positions", "total_sequence_length", "first_logits"]
    if "rotary" in pair.config.position:
        names.remove("position_ids")
    layers = range(pair.config.n_layer)
    caches = [f"{layer}.{part}" for layer in layers for part in ("key", "value")]
    assert [i.name for i in graph.input] == [*names, *(f"past_key_values.{c}" for c in caches)]
    assert [o.name for o in graph.output] == ["logits", *(f"present.{c}" for c in caches)]
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("GroupQueryAttention") == pair.config.n_layer
    assert "Softmax" not in kinds, "nothing of the portable attention is left"


def test_a_graph_of_another_make_is_refused(rotary: Pair, tmp_path: Path) -> None:
    """Its attention is not where ours is."""
    proto = onnx.load(rotary.portable)
    for node in proto.graph.node:
        if node.output[0] == "present.1.value":
            node.op_type = "Add"
            proto.graph.node.append(onnx.helper.make_node("Identity", [node.input[1]], ["between"]))
            node.input[1] = "between"
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(AssertionError, match="between comes from Identity"):
        write_serving(tmp_path / "model.onnx", tmp_path / "serving.onnx", rotary.config)
    assert not (tmp_path / "serving.onnx").exists()


@pytest.mark.parametrize("change", ["scale", "do_rotary", "position", "weight"])
def test_a_serving_graph_that_computes_something_else_is_found(
    rotary: Pair, tmp_path: Path, change: str
) -> None:
    proto = onnx.load(rotary.serving)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "scale" and change == "scale":
                attribute.f *= 1.01
        if node.op_type == "GroupQueryAttention" and change == "do_rotary":
            del node.input[7:]
            node.attribute.remove(next(a for a in node.attribute if a.name == "do_rotary"))
    for tensor in proto.graph.initializer:
        if change == "weight" and len(tensor.dims) == 2 and "rotary" not in tensor.name:
            tensor.CopyFrom(changed(tensor))
            break
        if change == "position" and tensor.name == "rotary.cos":
            rolled = np.roll(numpy_helper.to_array(tensor), 1, axis=0)
            tensor.CopyFrom(numpy_helper.from_array(rolled, tensor.name))
    onnx.save(proto, tmp_path / "serving.onnx")
    checks = compare_serving(rotary.portable, tmp_path / "serving.onnx", rotary.config, TOLERANCE)
    assert [check.passed for check in checks] == [False, False]


def changed(tensor: TensorProto) -> TensorProto:
    array = numpy_helper.to_array(tensor).copy()
    array[0] += 1.0
    array[-1] += 1.0
    return numpy_helper.from_array(array + 0.01, tensor.name)
