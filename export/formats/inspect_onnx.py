"""Writes onnx/inspect.onnx: a graph that also returns attention, for the Inspect tab.

>>> write_inspect(model, Path("models/mine/onnx/inspect.onnx"))      # doctest: +SKIP
"""

from pathlib import Path

import onnx
import torch
from onnx import helper, numpy_helper

from export.formats.inspect_modules import InspectGPT, InspectSeq2Seq
from export.formats.to_onnx import write_graph
from gptcore.config import ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq


def write_inspect(model: GPT | Seq2Seq, path: Path) -> None:
    """Write the graph; export.formats.inspect_modules documents its outputs."""
    if isinstance(model, Seq2Seq):
        write_seq2seq(model, path)
    else:
        write_gpt(model, path)


def write_gpt(model: GPT, path: Path) -> None:
    config, tokens = model.config, ["batch_size", "sequence_length"]
    length = tokens[1]
    layers = ["batch_size", config.n_layer]
    heads = [*layers, config.n_head, length, length]
    outputs = {
        "logits": [*tokens, config.vocab_size],
        "embeddings": [*tokens, config.n_embd],
        "positions": [1, length, model.position.table.shape[1]],
        "scores": heads,
        "attention": heads,
        "queries": [*layers, config.n_head, length, config.head_dim],
        "keys": [*layers, config.n_kv_head, length, config.head_dim],
        "values": [*layers, config.n_kv_head, length, config.head_dim],
        "normed": [*layers, 2, length, config.n_embd],
    }
    example = {"input_ids": torch.ones(2, 3, dtype=torch.long)}
    write_graph(InspectGPT(model), example, {"input_ids": tokens}, outputs, path)


def write_seq2seq(model: Seq2Seq, path: Path) -> None:
    config = model.config
    source, target = ["batch_size", "encoder_sequence_length"], ["batch_size", "sequence_length"]
    example = {
        "input_ids": torch.ones(2, 5, dtype=torch.long),
        "decoder_input_ids": torch.ones(2, 3, dtype=torch.long),
    }
    inputs = {"input_ids": source, "decoder_input_ids": target}
    heads = [config.n_layer, config.n_head]
    outputs = {
        "logits": [*target, config.vocab_size],
        "encoder_attention": [
            "batch_size", config.n_encoder_layer, config.n_head, source[1], source[1]
        ],
        "decoder_attention": ["batch_size", *heads, target[1], target[1]],
        "cross_attention": ["batch_size", *heads, target[1], source[1]],
    }  # fmt: skip
    write_graph(InspectSeq2Seq(model), example, inputs, outputs, path)


def write_untrained(config: ModelConfig, inspect: Path, path: Path) -> None:
    """Write a decoder's graph `inspect` as it was before the training.

    It holds no matrices: each time that it is opened it draws the same ones, with the spread of
    the configuration's init.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = InspectGPT(build_model(config))
    model = onnx.load(inspect)
    graph, parameters = model.graph, dict(fresh.named_parameters(remove_duplicate=False))
    for i, tensor in enumerate([t for t in graph.initializer if t.name in parameters]):
        values, name, shape = parameters[tensor.name].detach(), tensor.name, list(tensor.dims)
        if len(shape) < 2:
            tensor.CopyFrom(numpy_helper.from_array(values.numpy(), name))
            continue
        scale = float(values.std())
        graph.initializer.remove(tensor)
        graph.node.insert(
            0,
            helper.make_node("RandomNormal", [], [name], shape=shape, scale=scale, seed=float(i)),
        )
    onnx.save(model, path)


WRAPPERS = {GPT: InspectGPT, Seq2Seq: InspectSeq2Seq}
