"""Changes a graph in place, and saves it.

Large weights go to a file beside it, or stay in another graph's file.

>>> remove_unused(proto.graph)                                       # doctest: +SKIP
>>> save_graph(proto, Path("onnx/model.onnx"), numpy_helper.to_array) # doctest: +SKIP

The file beside `model.onnx` is `model.onnx_data`, where transformers.js, Optimum and
onnxruntime-genai look for it. The weights are written one by one: no second copy is in memory.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gptcore.bundle import data_file

MOST_BYTES = 2_000_000_000  # of weights in the graph's own file; protobuf ends at 2 GiB
SMALL_BYTES = 1024  # smaller weights are always in the graph's own file
PAGE = 4096  # bytes to which weights are aligned, so that a runtime can map them into memory

MICROSOFT = "com.microsoft"  # domain of ONNX Runtime's own operators

Value = Callable[[TensorProto], np.ndarray]


def set_items(repeated: Any, items: Iterable[Any]) -> None:
    """Replace all items of a protobuf's list."""
    items = list(items)
    del repeated[:]
    repeated.extend(items)


def need_microsoft(proto: onnx.ModelProto) -> None:
    """Declare that the graph has operators of ONNX Runtime's own."""
    if not any(opset.domain == MICROSOFT for opset in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))


def replace_node(graph: onnx.GraphProto, node: onnx.NodeProto, nodes: list[onnx.NodeProto]) -> None:
    """Put `nodes` where `node` was."""
    at = list(graph.node).index(node)
    del graph.node[at]
    for new in reversed(nodes):
        graph.node.insert(at, new)


def initializers(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in graph.initializer}


def makers_of(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node that computes each value, by the name of the value."""
    return {output: node for node in graph.node for output in node.output}


def remove_unused(graph: onnx.GraphProto) -> None:
    """Delete the nodes and weights that no output depends on."""
    outputs = {output.name for output in graph.output}
    nodes = nodes_for(graph, outputs)
    needed = outputs.union(*(node.input for node in nodes))
    set_items(graph.node, nodes)
    weights = graph.initializer
    for i in reversed(range(len(weights))):  # in their place: a list of others would be copied
        if weights[i].name not in needed:
            del weights[i]


def nodes_for(
    graph: onnx.GraphProto, names: Iterable[str], given: Set[str] = frozenset()
) -> list[onnx.NodeProto]:
    """Return the nodes, in their order, that compute the values `names` from those `given`."""
    makers = makers_of(graph)
    needed: set[str] = set()
    wanted = {*names} - given
    while wanted:
        needed |= wanted
        found = {name for made in wanted if made in makers for name in makers[made].input}
        wanted = found - given - needed
    return [node for node in graph.node if needed & set(node.output)]


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Move each node behind those that it reads, as ONNX demands; the others keep their order."""
    made = {output for node in graph.node for output in node.output}
    waiting, nodes = [*graph.node], []
    while waiting:
        later = []
        for node in waiting:
            if made & set(node.input):
                later.append(node)
            else:
                nodes.append(node)
                made -= set(node.output)
        waiting = later
    set_items(graph.node, nodes)


def part_of(path: Path, names: Iterable[str], given: Mapping[str, np.dtype] | None = None) -> bytes:
    """Return the graph, in bytes, that computes only the values `names`; weights beside it stay.

    `given`: the types of values that become inputs instead of being computed.
    """
    given = given or {}
    proto = onnx.load(path, load_external_data=False)
    graph = proto.graph
    outputs = {value.name: value for value in graph.output}
    unknown = partial(helper.make_tensor_value_info, shape=None)
    set_items(
        graph.output, [outputs.get(name) or unknown(name, TensorProto.FLOAT) for name in names]
    )
    set_items(graph.node, nodes_for(graph, names, given.keys()))
    remove_unused(graph)
    inputs = {value.name: value for value in graph.input} | {
        name: unknown(name, helper.np_dtype_to_tensor_dtype(type)) for name, type in given.items()
    }
    read = {name for node in graph.node for name in node.input}
    set_items(graph.input, [value for name, value in inputs.items() if name in read])
    return proto.SerializeToString()


def border(
    graph: onnx.GraphProto, now: Iterable[str], later: Iterable[str], given: Set[str]
) -> set[str]:
    """Return the values that are known once `now` is computed, and that `later` depends on."""
    done = nodes_for(graph, now, given)
    there = {*given}.union(*(node.output for node in done))
    needed = {*later}.union(*(node.input for node in nodes_for(graph, later, there)))
    return needed & there


def head_of(graph: onnx.GraphProto) -> onnx.NodeProto:
    """Return the product that computes the logits; a bias may follow it."""
    makers = makers_of(graph)
    node = makers["logits"]
    if node.op_type == "Add":
        node = next(makers[name] for name in node.input if name in makers)
    return node


def keep_last_logits(graph: onnx.GraphProto) -> None:
    """Let the head see only the tokens whose logits are wanted."""
    head, new = head_of(graph), numpy_helper.from_array
    graph.initializer.extend(
        [
            new(np.array([np.iinfo(np.int64).max]), "head_end"),
            new(np.array([1]), "head_axis"),
        ]
    )
    kept = helper.make_node(
        "Slice", [head.input[0], "first_logits", "head_end", "head_axis"], ["head_input"]
    )
    graph.node.insert(list(graph.node).index(head), kept)
    head.input[0] = "head_input"


def save_graph(proto: onnx.ModelProto, path: Path, value: Value) -> None:
    """Write a graph to `path`, and its weights too, or to one file beside it if they are large.

    `value` returns a weight's values; the proto may have only its shape.
    """
    sort_nodes(proto.graph)
    tensors = proto.graph.initializer
    if sum(map(n_bytes, tensors)) <= MOST_BYTES:
        for tensor in tensors:
            tensor.ClearField("doc_string")  # empty, and there in some weights alone
            if not tensor.HasField("raw_data"):
                tensor.CopyFrom(numpy_helper.from_array(value(tensor), tensor.name))
    else:
        with open(data_file(path), "wb") as file:
            for tensor in tensors:
                array = np.asarray(value(tensor), order="C")  # a scalar stays one
                if array.nbytes < SMALL_BYTES:
                    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
                    continue
                offset = file.seek(-(-file.tell() // PAGE) * PAGE)
                file.write(array.data)
                refer(tensor, data_file(path).name, offset, array.nbytes)
    onnx.save(proto, str(path))


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor be read from a file in the folder of its graph."""
    shape, data_type, name = list(tensor.dims), tensor.data_type, tensor.name
    tensor.Clear()
    tensor.dims.extend(shape)
    tensor.data_type, tensor.name = data_type, name
    tensor.data_location = TensorProto.EXTERNAL
    for key, at in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(at))


def refer_to_weights(graph: onnx.GraphProto, source: Path) -> None:
    """Replace the bytes of each weight by their place in the portable file.

    Weights that lie beside the portable graph have a place already.
    """
    with open(source, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        end = 0
        for tensor in graph.initializer:
            length = len(tensor.raw_data)
            if length < SMALL_BYTES:
                continue
            at = content.find(tensor.raw_data, end)  # the weights keep their order
            if at < 0:
                at = content.find(tensor.raw_data)
            if at < 0:
                continue
            end = at + length
            refer(tensor, source.name, at, length)


def n_bytes(tensor: TensorProto) -> int:
    item = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return item * int(np.prod(tensor.dims, dtype=np.int64))
