"""Exports a model to ONNX: dynamic axes, key/value cache, standard operators only.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn import build_model
    >>> write_decoder(build_model(PRESETS["tiny"]), Path("model.onnx"))   # doctest: +SKIP

The graph is traced from the model's own `forward`, without the weights. These are added by their
names, in the file of the graph or, if they are too large for it, in one file beside it. The axes
get the names that other runtimes expect, and metadata about the exporting machine is deleted.

Of a decoder, two layers are traced, and the second is repeated: the time of a trace grows with the
number of layers, from seconds to minutes.
"""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from export.formats.graph import save_graph, set_items
from gptcore.config import ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT

OPSET = 18  # the lowest opset that the exporter writes; every runtime supports it
IR_VERSION = 8  # the one that came with this opset: the exporter's own shuts out older runtimes
TRACED_LAYERS = 2

Axes = dict[str, list]  # per input or output: names of dynamic axes, sizes of others


def write_decoder(model: GPT, path: Path) -> None:
    """Export a decoder in fp32, with logits for all T; `axes` names inputs and outputs."""
    save_with_weights(decoder_graph(model.config), model, path)


def write_graph(
    module: nn.Module, example: dict[str, Any], inputs: Axes, outputs: Axes, path: Path
) -> None:
    """Export a module in fp32 and evaluation mode.

    `example` holds its arguments, tensors or nested lists of tensors, in the order of `inputs`.
    """
    module = module.float().cpu()
    proto = graph_without_weights(module, example, inputs, outputs)
    rename_axes(proto.graph, inputs | outputs)
    strip_metadata(proto)
    save_with_weights(proto, module, path)


def trace(
    module: nn.Module, example: dict[str, Any], inputs: Axes, outputs: Axes
) -> torch.onnx.ONNXProgram:
    """Trace a module in evaluation mode; the arguments are those of `write_graph`."""
    names = iter(inputs.values())

    def dynamic(value: Any) -> Any:
        if isinstance(value, Tensor):
            return {i: axis for i, axis in enumerate(next(names)) if isinstance(axis, str)}
        return type(value)(dynamic(part) for part in value)

    # The exporter warns about a missing optional package that is not needed here.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    # Where axes have no fixed size, its cache of shapes costs more time than it saves.
    uncached = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    with warnings.catch_warnings(), torch.no_grad(), uncached:
        warnings.simplefilter("ignore")  # about axes that rename_axes names later
        program = torch.onnx.export(
            module.eval(),
            (),
            kwargs=example,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes={name: dynamic(value) for name, value in example.items()},
            verbose=False,
            optimize=False,  # graph_without_weights does that
        )
    assert program is not None  # torch's older exporter returns None
    return program


# ------------------------------------------------------------------ a decoder without weights


def decoder_graph(config: ModelConfig) -> onnx.ModelProto:
    """Return the graph of a decoder, whose weights have names but neither shapes nor values."""
    traced = replace(config, n_layer=min(config.n_layer, TRACED_LAYERS))
    with torch.device("meta"):
        model, example = build_model(traced), example_inputs(traced)
    proto = graph_without_weights(model, example, *axes(traced))
    repeat_layer(proto.graph, config.n_layer - traced.n_layer)
    inputs, outputs = axes(config)
    declare(proto.graph.input, inputs)
    declare(proto.graph.output, outputs)
    strip_metadata(proto)
    return proto


def graph_without_weights(
    module: nn.Module, example: dict[str, Any], inputs: Axes, outputs: Axes
) -> onnx.ModelProto:
    """Trace a module to a graph that names its weights but does not hold them.

    The arguments are those of `write_graph`.
    """
    program, weights = trace(module, example, inputs, outputs), tensors_of(module)
    for name, initializer in program.model.graph.initializers.items():
        if name in weights:
            initializer.const_value = None
    logging.disable(logging.WARNING)  # it warns of each of them
    try:
        program.optimize()
        return program.model_proto
    finally:
        logging.disable(logging.NOTSET)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by all of their names."""
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())


def repeat_layer(graph: onnx.GraphProto, times: int) -> None:
    """Insert copies of the last traced layer after it, which read the weights of further layers.

    The exporter notes in each node which module it comes from.
    """
    last = TRACED_LAYERS - 1
    at = [i for i, node in enumerate(graph.node) if f"'blocks.{last}'" in scopes(node)]
    if not times:
        return
    layer, after = graph.node[at[0] : at[-1] + 1], graph.node[at[-1] + 1 :]
    made = {name for node in layer for name in node.output}
    read, written = graph.node[at[0] - 1].output[0], layer[-1].output[0]
    nodes, result = list(graph.node[: at[-1] + 1]), written

    def renamed(name: str, n: int) -> str:
        of_layer = re.sub(rf"^(blocks|past_key_values|present)\.{last}\.", rf"\1.{n}.", name)
        return f"{name}.{n}" if of_layer == name and name in made else of_layer

    for n in range(TRACED_LAYERS, TRACED_LAYERS + times):
        for node in layer:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name}.{n}"
            copy.input[:] = [result if i == read else renamed(i, n) for i in node.input]
            copy.output[:] = [renamed(o, n) for o in node.output]
            nodes.append(copy)
        result = renamed(written, n)
    for node in after:
        node.input[:] = [result if name == written else name for name in node.input]
    nodes += after
    set_items(graph.node, nodes)


def scopes(node: onnx.NodeProto) -> str:
    """Return the names of the modules that a node comes from."""
    return next((p.value for p in node.metadata_props if p.key.endswith("name_scopes")), "")


def declare(values: Any, names: Axes) -> None:
    """Declare a graph's inputs or outputs: those about the cache and the logits are floats."""
    del values[:]
    for name, shape in names.items():
        is_id = name.endswith(("_ids", "_mask"))
        kind = TensorProto.INT64 if is_id else TensorProto.FLOAT
        values.append(helper.make_tensor_value_info(name, kind, shape))


def save_with_weights(proto: onnx.ModelProto, model: nn.Module, path: Path) -> None:
    """Declare the weights that a graph reads by their names, check it, and write both."""
    weights = tensors_of(model)
    add_weights(proto.graph, weights)
    transposed = fold_transposes(proto.graph, weights)
    check(proto, weights)

    def value(tensor: TensorProto) -> np.ndarray:
        if tensor.name not in weights:
            return numpy_helper.to_array(tensor)
        array = weights[tensor.name].detach().float().cpu().numpy()
        return array.T if tensor.name in transposed else array

    save_graph(proto, path, value)


def add_weights(graph: onnx.GraphProto, weights: dict[str, Tensor]) -> None:
    """Declare the weights that the graph reads, in the order in which it reads them."""
    for name in dict.fromkeys(name for node in graph.node for name in node.input):
        if name in weights:
            shape = list(weights[name].shape)
            graph.initializer.append(
                TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT)
            )


def fold_transposes(graph: onnx.GraphProto, weights: dict[str, Tensor]) -> set[str]:
    """Let weights that are only read transposed be stored so; return their names.

    A tied embedding is read in both ways and stays as it is.
    """
    n_readers = Counter(name for node in graph.node for name in node.input)
    folded: dict[str, str] = {}  # the transposed matrix: the weight
    for node in list(graph.node):
        name = node.input[0] if node.op_type == "Transpose" else ""
        if name in weights and n_readers[name] == 1:
            folded[node.output[0]] = name
            graph.node.remove(node)
    for node in graph.node:
        node.input[:] = [folded.get(name, name) for name in node.input]
    names = set(folded.values())
    for tensor in graph.initializer:
        if tensor.name in names:
            tensor.dims.reverse()
    return names


def check(proto: onnx.ModelProto, weights: Iterable[str]) -> None:
    """Check a graph without the values of its weights: here they are inputs."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    graph, names = bare.graph, set(weights)
    tensors = list(proto.graph.initializer)
    set_items(graph.initializer, (tensor for tensor in tensors if tensor.name not in names))
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in tensors
        if tensor.name in names
    )
    onnx.checker.check_model(bare, full_check=True)


# ------------------------------------------------------------------ names


def axes(config: ModelConfig) -> tuple[Axes, Axes]:
    """Return names and axes of the graph's inputs and outputs. Other runtimes rely on them."""
    tokens = ["batch_size", "sequence_length"]
    past = ["batch_size", config.n_kv_head, "past_sequence_length", config.head_dim]
    whole = "past_sequence_length + sequence_length"
    present = ["batch_size", config.n_kv_head, whole, config.head_dim]
    inputs: Axes = {
        "input_ids": tokens,
        "attention_mask": ["batch_size", "total_sequence_length"],
        "position_ids": tokens,
    }
    outputs: Axes = {"logits": [*tokens, config.vocab_size]}
    for layer in range(config.n_layer):
        for part in ("key", "value"):
            inputs[f"past_key_values.{layer}.{part}"] = past
            outputs[f"present.{layer}.{part}"] = present
    return inputs, outputs


def example_inputs(config: ModelConfig) -> dict:
    """Return small inputs for tracing; no two axes have the same size."""
    B, T, P = 2, 3, 5
    shape = (B, config.n_kv_head, P, config.head_dim)
    return {
        "input_ids": torch.ones(B, T, dtype=torch.long),
        "attention_mask": torch.ones(B, P + T, dtype=torch.long),
        "position_ids": torch.arange(P, P + T).expand(B, T).contiguous(),
        "past_key_values": [
            (torch.randn(shape), torch.randn(shape)) for _ in range(config.n_layer)
        ],
    }


def rename_axes(graph: onnx.GraphProto, names: Axes) -> None:
    """Give each input and output the axis names in `names`."""
    for value in [*graph.input, *graph.output]:
        for dimension, axis in zip(value.type.tensor_type.shape.dim, names[value.name]):
            if isinstance(axis, str):
                dimension.dim_param = axis
            else:
                dimension.dim_value = axis


def strip_metadata(proto: onnx.ModelProto) -> None:
    """Delete the exporter's metadata: stack traces with local paths, and module names."""
    graph = proto.graph
    proto.ir_version = IR_VERSION  # what came later is such metadata, and types that are not used
    del graph.value_info[:]
    graph.name = "gptcore"
    for part in [proto, graph, *graph.node, *graph.initializer, *graph.input, *graph.output]:
        del part.metadata_props[:]
        part.doc_string = ""
