"""Exports a decoder to one ONNX file: dynamic axes, key/value cache, standard operators only.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn import build_model
    >>> write_onnx(build_model(PRESETS["tiny"]), "model.onnx")          # doctest: +SKIP

The graph is traced from the model's own `forward`. Then the axes get the names that other
runtimes expect, and metadata about the exporting machine is deleted.
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.gpt import GPT

OPSET = 18  # the lowest opset that the exporter writes; every runtime supports it


Axes = dict[str, list]  # per input or output: names of dynamic axes, sizes of others


def write_onnx(model: GPT, path: str | Path) -> None:
    """Export a decoder in fp32, with logits for all T; `axes` names inputs and outputs."""
    inputs, outputs = axes(model.config)
    write_graph(model, example_inputs(model.config), inputs, outputs, path)


def write_graph(
    module: nn.Module, example: dict[str, Any], inputs: Axes, outputs: Axes, path: str | Path
) -> None:
    """Export a module in fp32 and evaluation mode to one file.

    `example` holds its arguments, tensors or nested lists of tensors, in the order of `inputs`.
    """
    module = module.float().cpu().eval()
    names = iter(inputs.values())

    def dynamic(value: Any) -> Any:
        if isinstance(value, Tensor):
            return {i: axis for i, axis in enumerate(next(names)) if isinstance(axis, str)}
        return type(value)(dynamic(part) for part in value)

    # The exporter warns about a missing optional package that is not needed here.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about axes that rename_axes names later
        program = torch.onnx.export(
            module,
            (),
            kwargs=example,
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes={name: dynamic(value) for name, value in example.items()},
            verbose=False,
        )
    assert program is not None  # without dynamo it would be
    proto = program.model_proto
    rename_axes(proto.graph, inputs | outputs)
    strip_metadata(proto)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, str(path))


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
    del graph.value_info[:]
    graph.name = "gptcore"
    for part in [proto, graph, *graph.node, *graph.initializer, *graph.input, *graph.output]:
        del part.metadata_props[:]
        part.doc_string = ""
