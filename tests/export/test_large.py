"""Models whose weights do not fit the graph's file: the limits are lowered, so that a small one is.

Its weights lie in one file beside the graph and in shards of safetensors; all checks are made.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from safetensors import safe_open

from export.folder.serving import write_serving_graphs
from export.folder.write import add_inspect, write_model
from export.formats import to_onnx, weights
from export.formats.feeds import decoder_feeds
from export.formats.graph import PAGE, initializers
from export.formats.to_onnx import decoder_graph, write_decoder
from export.formats.weights import Weights
from export.quantize.save import save_quantized
from export.ship.web import browser_files, check_model
from export.verify import decoder
from export.verify.decoder import load_reference, verify
from export.verify.report import TOLERANCE, any_failed
from gptcore.bundle import (
    INDEX,
    INSPECT,
    ONNX,
    SERVING,
    VARIANTS,
    WEIGHTS,
    Bundle,
    data_file,
    graph_bytes,
    load_bundle,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.engine.onnx_session import open_inference
from gptcore.facts import ModelFacts
from gptcore.feeds import no_cache
from gptcore.model import load_model
from gptcore.nn import build_model, count_parameters
from gptcore.text.tokenizer import Tokenizer

CONFIG = replace(PRESETS["tiny"], n_layer=3)


@pytest.fixture(scope="module")
def large(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained model of which no file may hold more than 100 kB of weights."""
    folder = tmp_path_factory.mktemp("large")
    torch.manual_seed(0)
    model = build_model(CONFIG)
    facts = ModelFacts("large", False, count_parameters(model), CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("export.formats.graph.MOST_BYTES", 100_000)
        patch.setattr(weights, "SHARD_BYTES", 100_000)
        write_model(model, tokenizer, False, folder)
        assert not any_failed(verify(Bundle(folder, CONFIG, tokenizer, facts)))
        save_quantized(folder / VARIANTS["fp32"], folder / VARIANTS["q8"], "q8")
        assert not any_failed(write_serving_graphs(folder, CONFIG, ["fp32", "q8"], TOLERANCE))
    write_facts(folder, facts)
    return folder


def test_the_weights_lie_in_one_file_beside_the_graph_at_the_borders_of_pages(large: Path) -> None:
    graph = onnx.load(large / ONNX, load_external_data=False).graph
    places = [
        {entry.key: entry.value for entry in tensor.external_data}
        for tensor in graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
    ]
    assert {place["location"] for place in places} == {"model.onnx_data"}
    assert all(int(place["offset"]) % PAGE == 0 for place in places)
    lengths = sum(int(place["length"]) for place in places)
    assert lengths > 0.95 * 4 * count_parameters(build_model(CONFIG))
    assert (large / ONNX).stat().st_size < 100_000 < data_file(large / ONNX).stat().st_size
    assert graph_bytes(large / ONNX) > lengths
    onnx.checker.check_model(str(large / ONNX), full_check=True)


@pytest.fixture(scope="module")
def in_one_file(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of the same model with its weights."""
    path = tmp_path_factory.mktemp("one") / "model.onnx"
    write_decoder(load_reference(load_bundle(large)), path)
    return path


@pytest.mark.slow
def test_the_same_logits_come_out_of_one_file_and_of_two(large: Path, in_one_file: Path) -> None:
    assert [path.name for path in in_one_file.parent.iterdir()] == ["model.onnx"]
    feeds = decoder_feeds(np.arange(20)[None], no_cache(CONFIG))
    one, two = (open_inference(p).run(None, feeds) for p in (in_one_file, large / ONNX))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.slow
def test_four_bits_are_fitted_alike_in_parts_and_from_weights_beside_the_graph(
    large: Path, in_one_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Second moments of a large model are computed for a few of its products at a time."""
    rows = [np.arange(i, i + 64) for i in range(8)]
    files = {}
    for n_bytes in (1e9, 0):
        monkeypatch.setattr("export.quantize.save.MOMENTS_BYTES", n_bytes)
        for source in (in_one_file, large / ONNX):
            path = tmp_path / f"{len(files)}.onnx"
            save_quantized(source, path, "q4", rows)
            files[path] = onnx.load(path).SerializeToString()
    assert len(files) == 4 and len(set(files.values())) == 1


@pytest.mark.slow
def test_four_bits_beside_their_graph_are_halved_as_those_in_it(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their scales have 16 bits already."""
    q4 = {n: shutil.copytree(large, tmp_path / str(n)) / VARIANTS["q4"] for n in (100_000, 10**9)}
    graphs = []
    for most, path in q4.items():
        monkeypatch.setattr("export.formats.graph.MOST_BYTES", most)
        save_quantized(large / ONNX, path, "q4")
        assert data_file(path).exists() == (most < 10**9)
        save_quantized(path, path.with_name("half.onnx"), "fp16")
        graphs.append(onnx.load(path.with_name("half.onnx")).graph)
    one, two = ({t.name: numpy_bytes(t) for t in graph.initializer} for graph in graphs)
    assert one == two and list(graphs[0].node) == list(graphs[1].node)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["fp16", "int8"])
def test_weights_beside_the_graph_become_those_of_the_small_file(
    large: Path, in_one_file: Path, tmp_path: Path, variant: str
) -> None:
    graphs = []
    for source in (in_one_file, large / ONNX):
        save_quantized(source, tmp_path / "small.onnx", variant)
        graphs.append(onnx.load(tmp_path / "small.onnx").graph)
    one, two = graphs
    assert initializers(one) == initializers(two)
    assert list(one.node) == list(two.node)


def test_the_serving_graph_refers_to_the_file_beside_the_portable_one(large: Path) -> None:
    for variant, file in (("fp32", "model.onnx_data"), ("q8", "model_int8.onnx_data")):
        graph = onnx.load(large / SERVING[variant], load_external_data=False).graph
        entries = [entry for tensor in graph.initializer for entry in tensor.external_data]
        assert {entry.value for entry in entries if entry.key == "location"} == {file}
        model = load_model(large, threads=1, variant=variant)
        assert np.isfinite(model.session().prefill([1, 2, 3])).all()


def test_shards_have_an_index_and_are_read_one_tensor_at_a_time(large: Path) -> None:
    index = json.loads((large / INDEX).read_text())
    shards = sorted(path.name for path in large.glob("*.safetensors"))
    assert shards[0] == f"model-00001-of-{len(shards):05}.safetensors" and WEIGHTS not in shards
    assert set(index["weight_map"].values()) == set(shards)
    state = Weights(large)
    assert set(state) == set(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in state.values())
    for name, file in index["weight_map"].items():
        with safe_open(large / file, "pt") as shard:
            assert torch.equal(shard.get_tensor(name), state[name])


def test_transformers_reads_the_shards(large: Path) -> None:
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM.from_pretrained(large)
    assert torch.equal(theirs.model.norm.weight, Weights(large)["model.norm.weight"])


@pytest.mark.parametrize("file", ["onnx/model.onnx_data", "model-00001-of-", INDEX])
def test_a_missing_part_is_named(large: Path, tmp_path: Path, file: str) -> None:
    copy = shutil.copytree(large, tmp_path / "copy")
    (path,) = (p for p in copy.rglob("*") if p.relative_to(copy).as_posix().startswith(file))
    path.unlink()
    with pytest.raises(UserError, match=f"{path.name} is missing"):
        load_bundle(copy)
    if path.suffix == ".safetensors":
        with pytest.raises(UserError, match=f"{path.name} is missing"):
            Weights(copy)


def test_a_graph_with_weights_beside_it_is_not_for_browsers(large: Path) -> None:
    bundle = load_bundle(large)
    with pytest.raises(UserError, match="neither an int8 graph nor an fp32 graph below 2 GB"):
        check_model(bundle)
    assert not browser_files(bundle)


def test_one_changed_value_beside_the_graph_fails_the_verification(
    large: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(large, tmp_path / "copy")
    data = np.memmap(data_file(copy / ONNX), np.float32, "r+")
    data[np.flatnonzero(np.abs(data) > 1e-3)[12_345]] += 0.5
    data.flush()
    bundle = replace(load_bundle(large), path=copy)
    assert any_failed(verify(bundle))


# ------------------------------------------------------------------ layers that are repeated


REPEATED = {
    "rotary": CONFIG,
    "post-norm, biases": replace(
        PRESETS["wayland_post"], vocab_size=300, block_size=64, n_layer=3, n_embd=64, n_head=4
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", REPEATED)
def test_a_repeated_layer_is_the_one_that_would_have_been_traced(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = REPEATED[shape]
    repeated = nodes_of(decoder_graph(config))
    monkeypatch.setattr(to_onnx, "TRACED_LAYERS", config.n_layer)
    assert repeated == nodes_of(decoder_graph(config))


def nodes_of(proto: onnx.ModelProto) -> list[tuple]:
    """Each node's kind, attributes and inputs: a name that others fix, a constant, or a node."""
    constants = {t.name: numpy_bytes(t) for t in proto.graph.initializer}
    made: dict[str, object] = {}
    nodes = []
    for n, node in enumerate(proto.graph.node):
        inputs = [made.get(name, constants.get(name, name)) for name in node.input]
        attributes = sorted(a.SerializeToString() for a in node.attribute)
        nodes.append((node.op_type, attributes, inputs))
        made |= {name: (n, i) for i, name in enumerate(node.output)}
    outputs = [made[value.name] for value in proto.graph.output]
    return [*nodes, ("outputs", [value.name for value in proto.graph.output], outputs)]


def numpy_bytes(tensor: TensorProto) -> bytes:
    return onnx.numpy_helper.to_array(tensor).tobytes()


# ------------------------------------------------------------------ budgets


def test_a_larger_model_is_compared_on_fewer_and_smaller_cases() -> None:
    small, large = (decoder.cases_of(CONFIG, n) for n in (1_000_000, 1_500_000_000))
    assert len(small) == 80 or CONFIG.block_size < 255
    assert 10 < len(large) < len(small) and set(large) < set(small)
    assert sum(b * (t + p) for b, t, p in large) * 2 * 1.5e9 <= decoder.FLOPS
    assert {case[0] for case in large} == set(decoder.BATCHES)
    assert len(decoder.cases_of(CONFIG, 10**12)) == 1


def test_inspect_refuses_a_model_that_one_file_does_not_hold(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.folder.write.MOST_BYTES", 100_000)
    with pytest.raises(UserError, match=r"parameters: Inspect takes at most 25,000 parameters$"):
        add_inspect(large)
    assert not (large / INSPECT).exists()
