"""A graph that somebody made to compute for ever is refused before anything of it is run."""

from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from conftest import ROOT
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from gptcore.checks import UserError
from gptcore.engine.onnx_scan import check_straight, fields
from gptcore.engine.onnx_session import open_inference

SCALAR = {"elem_type": TensorProto.FLOAT, "shape": []}
FOLDERS = sorted((ROOT / "models").glob("*/onnx"))


def model_of(nodes: list[onnx.NodeProto], **more: list) -> onnx.ModelProto:
    """A model that computes y from x."""
    x, y = (helper.make_tensor_value_info(name, **SCALAR) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def straight() -> onnx.ModelProto:
    return model_of([helper.make_node("Neg", ["x"], ["y"])])


def loop() -> onnx.ModelProto:
    """The loop goes on while `on`, which it was given, is true: always."""
    on = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("on", "still_on")]
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    before, after = (helper.make_tensor_value_info(name, **SCALAR) for name in ("a", "b"))
    steps = [helper.make_node("Identity", ["on"], ["still_on"]),
             helper.make_node("Neg", ["a"], ["b"])]  # fmt: skip
    body = helper.make_graph(steps, "body", [count, on[0], before], [on[1], after])
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return model_of([
        helper.make_node("Constant", [], ["true"], value=true),
        helper.make_node("Loop", ["", "true", "x"], ["y"], body=body),
    ])  # fmt: skip


def functions() -> onnx.ModelProto:
    """Thirty functions, each of which calls the next one twice."""
    made = [
        helper.make_function(
            "own", f"f{i}", ["a"], ["c"],
            [helper.make_node(f"f{i + 1}", ["a"], ["b"], domain="own"),
             helper.make_node(f"f{i + 1}", ["b"], ["c"], domain="own")],
            [helper.make_opsetid("own", 1)],
        )
        for i in range(30)
    ]  # fmt: skip
    return model_of([helper.make_node("f0", ["x"], ["y"], domain="own")], functions=made)


def in_two_parts() -> bytes:
    """Two messages, one after the other, are one: the second adds its nodes to the first's."""
    first, second = loop(), onnx.ModelProto()
    second.graph.node.append(first.graph.node.pop())
    return first.SerializeToString() + second.SerializeToString()


def with_a_long_tag() -> bytes:
    """Bits of a tag beyond the 32nd are ignored: the field `graph` under another number."""
    rest = loop()
    graph = rest.graph.SerializeToString()
    rest.ClearField("graph")
    tag = 7 << 3 | 2 | 1 << 34
    long = bytes(tag >> 7 * i & 127 | (128 if i < 4 else 0) for i in range(5))
    length = bytes([len(graph) & 127 | 128, len(graph) >> 7])
    return rest.SerializeToString() + long + length + graph


@pytest.mark.parametrize("make", [loop, in_two_parts, with_a_long_tag])
def test_a_loop_that_onnx_runtime_would_run_is_refused(
    tmp_path: Path, make: Callable[[], onnx.ModelProto | bytes]
) -> None:
    """It could not be interrupted."""
    made, path = make(), tmp_path / "model.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    with pytest.raises(UserError, match="might never end"):
        open_inference(path)


def test_functions_that_double_the_work_are_refused(tmp_path: Path) -> None:
    """ONNX Runtime would write all 2**30 of them out before it ran any."""
    onnx.save(functions(), tmp_path / "model.onnx")
    with pytest.raises(UserError, match="might never end"):
        open_inference(tmp_path / "model.onnx")


def test_a_straight_graph_runs(tmp_path: Path) -> None:
    onnx.save(straight(), tmp_path / "model.onnx")
    assert open_inference(tmp_path / "model.onnx").get_inputs()[0].name == "x"


@pytest.mark.parametrize("path", [p for f in FOLDERS for p in sorted(f.glob("*.onnx"))])
def test_our_own_graphs_are_valid_and_straight(path: Path) -> None:
    onnx.checker.check_model(path)  # among others, that no node stands before one that it reads
    check_straight(path)


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.onnx cannot be read: No such file"):
        check_straight(tmp_path / "none.onnx")


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """Unless it ends where one of its fields does, and is a smaller model."""
    content, path = straight().SerializeToString(), tmp_path / "model.onnx"
    path.write_bytes(content)
    with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        ends = {end for _, (_, end) in fields(data, (0, len(data)))}
    for n in range(len(content)):
        path.write_bytes(content[:n])
        try:
            check_straight(path)
            assert is_whole(content[:n]), n
        except UserError as error:
            assert "no complete ONNX file" in str(error) and n not in ends


def is_whole(content: bytes) -> bool:
    """Whether protobuf's own reader takes so much of a file."""
    try:
        return bool(content) and bool(onnx.ModelProto.FromString(content))
    except DecodeError:
        return False


def test_any_damage_is_found_or_harmless(tmp_path: Path) -> None:
    """A file, each byte of it replaced, is refused or read to the end."""
    content, path = straight().SerializeToString(), tmp_path / "model.onnx"
    for i in range(len(content)):
        path.write_bytes(content[:i] + b"\xff" + content[i + 1 :])
        try:
            check_straight(path)
        except UserError as error:
            assert str(path) in str(error)
