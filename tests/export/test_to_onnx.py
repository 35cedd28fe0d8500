"""What the export does to a graph afterwards: names of axes, and nothing of the machine."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from export.formats import to_onnx
from export.formats.feeds import decoder_feeds
from export.formats.to_onnx import (
    axes,
    example_inputs,
    rename_axes,
    strip_metadata,
    trace,
    write_decoder,
)
from export.verify.decoder import load_reference, run_torch
from gptcore.bundle import ONNX
from gptcore.config import PRESETS
from gptcore.engine.onnx_session import open_inference
from gptcore.feeds import no_cache
from gptcore.model import OnnxModel
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT

SECRET = "/home/somebody/secret.py"


def noted() -> ModelProto:
    """A graph with a note at every place that can hold one."""
    x, y, between = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xyz")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    nodes = [helper.make_node("Add", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    graph = helper.make_graph(nodes, SECRET, [x], [y], [weight], SECRET, [between])
    proto = helper.make_model(graph, doc_string=SECRET)
    parts = [graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info]
    for part in parts:
        part.doc_string = SECRET
        part.metadata_props.add(key="stack", value=SECRET)
    proto.graph.CopyFrom(graph)
    proto.metadata_props.add(key="stack", value=SECRET)
    return proto


def test_no_note_of_the_exporter_is_left_and_the_graph_is_the_same() -> None:
    proto = noted()
    before = [(n.op_type, list(n.input), list(n.output)) for n in proto.graph.node]
    assert SECRET in str(proto)
    strip_metadata(proto)
    assert SECRET not in str(proto) and "stack" not in str(proto)
    assert proto.graph.name == "gptcore" and not proto.graph.value_info
    assert [(n.op_type, list(n.input), list(n.output)) for n in proto.graph.node] == before
    assert [v.name for v in (*proto.graph.input, *proto.graph.output)] == ["x", "y"]
    onnx.checker.check_model(proto, full_check=True)


def test_axes_get_their_names_and_their_sizes() -> None:
    graph = noted().graph
    rename_axes(graph, {"x": ["batch_size", 7], "y": [5, "length"]})
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.output)]
    assert [[d.dim_param or d.dim_value for d in dims] for dims in shapes] == [
        ["batch_size", 7],
        [5, "length"],
    ]


@pytest.mark.parametrize("preset", ["tiny", "nano"])
def test_the_example_has_the_shapes_of_the_contract_and_no_two_axes_of_one_size(
    preset: str,
) -> None:
    """A tracer takes axes of one size for one axis."""
    config = PRESETS[preset]
    example, (inputs, outputs) = example_inputs(config), axes(config)
    layers = example.pop("past_key_values")
    tensors = [*example.values(), *(tensor for layer in layers for tensor in layer)]
    sizes: dict[str, int] = {}
    for tensor, names in zip(tensors, inputs.values(), strict=True):
        assert tensor.dim() == len(names)
        for size, axis in zip(tensor.shape, names):
            assert sizes.setdefault(axis, size) == size if isinstance(axis, str) else axis == size
    assert len(set(sizes.values())) == len(sizes) == 4 and 1 not in sizes.values()
    assert (
        sizes["total_sequence_length"] == sizes["sequence_length"] + sizes["past_sequence_length"]
    )
    assert list(outputs) == [
        "logits",
        *(name.replace("past_key_values", "present") for name in list(inputs)[3:]),
    ]


@dataclass(frozen=True)
class Deep:
    """A model of more layers than are traced, its graph, and how many layers were traced."""

    model: GPT
    path: Path
    traced: list[int]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Deep:
    torch.manual_seed(5)
    model = build_model(replace(PRESETS["tiny"], n_layer=4)).eval()
    path, traced = tmp_path_factory.mktemp("deep") / "model.onnx", []

    def watched(module: GPT, *how: object, **more: object) -> object:
        traced.append(len(module.blocks))
        return trace(module, *how, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_onnx, "trace", watched)
        write_decoder(model, path)
    return Deep(model, path, traced)


def test_a_graph_of_many_layers_is_traced_with_two_and_computes_what_pytorch_does(
    deep: Deep,
) -> None:
    assert deep.traced == [2]
    session, cache = open_inference(deep.path), no_cache(deep.model.config, batch=2)
    assert [output.name for output in session.get_outputs()] == list(axes(deep.model.config)[1])
    for ids in np.random.default_rng(1).integers(0, 512, (2, 2, 6)):  # the later six after a cache
        got = session.run(None, decoder_feeds(ids, cache))
        with torch.no_grad():
            expected = run_torch(deep.model, ids, cache)
        assert len(got) == len(expected) == 1 + 2 * 4
        for ours, theirs in zip(got, expected):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        cache = expected[1:]


def test_no_weight_is_transposed_while_the_model_runs_but_one_that_is_read_in_both_ways(
    deep: Deep,
) -> None:
    graph = onnx.load(deep.path).graph
    stored = {tensor.name for tensor in graph.initializer}
    turned = {node.input[0] for node in graph.node if node.op_type == "Transpose"} & stored
    looked_up = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    assert len(turned) == 1 and turned < looked_up


@pytest.mark.slow
def test_the_exporter_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its own lines and warnings would have a user look for a mistake."""
    model = build_model(replace(PRESETS["tiny"], n_layer=1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_decoder(model, tmp_path / "model.onnx")
    assert [str(warning.message) for warning in caught] == []
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_dropout_is_off_in_an_exported_graph(base_model: OnnxModel) -> None:
    bundle = base_model.bundle
    assert bundle.config.dropout == bundle.config.attention_dropout == 0.5
    kinds = {node.op_type for node in onnx.load(bundle.path / ONNX).graph.node}
    assert not {kind for kind in kinds if "Dropout" in kind or "Random" in kind or "Bern" in kind}
    ids = np.arange(12)[None]
    feeds = decoder_feeds(ids, no_cache(bundle.config))
    (got,) = open_inference(bundle.path / ONNX).run(["logits"], feeds)
    with torch.no_grad():
        expected = run_torch(load_reference(bundle), ids, no_cache(bundle.config))[0]
    assert np.abs(got - expected).max() < 1e-4
