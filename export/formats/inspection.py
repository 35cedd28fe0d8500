"""onnx/inspect.onnx, for the page's Inspect: a model that also returns its attention, as a graph.

    >>> from gptcore.config import PRESETS
    >>> seen = InspectGPT(GPT(PRESETS["tiny"]))(torch.tensor([[1, 2, 3]]))
    >>> seen["attention"].shape       # batch, layer, head, query, key
    torch.Size([1, 2, 4, 3, 3])
    >>> write_inspect(model, Path("models/mine/onnx/inspect.onnx"))          # doctest: +SKIP

The model itself is unchanged: hooks on its `AttentionSoftmax` modules record what goes in and out.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from export.formats.to_onnx import Axes, write_graph
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.seq2seq import Seq2Seq


class InspectGPT(nn.Module):
    """Maps input_ids (B, T) to named tensors, without a cache."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        """Return logits (B, T, V), embeddings (B, T, C), positions (1, T, width of the table), and
        of all layers: the scores before the mask and the attention weights, (B, L, H, T, T) each;
        queries (B, L, H, T, D), keys and values (B, L, K, T, D), normed but not yet turned; and
        the outputs of the norms of attention and feed-forward, (B, L, 2, T, C)."""
        model = self.model
        inputs = whole_sequence(input_ids)
        blocks: list[Any] = list(model.blocks)
        attentions = [block.attention for block in blocks]
        # The export gives a shared norm as two objects; it is called twice.
        names = ("attention_norm", "feed_forward_norm")[: 2 - model.config.shared_norm]
        norms = [getattr(block, name) for block in blocks for name in names]
        with (
            recorded(softmaxes_of(model, "attention")) as softmaxes,
            recorded(a.qkv for a in attentions) as packed,
            recorded(a.qk_norm for a in attentions) as queries_keys,
            recorded(norms) as normed,
        ):
            logits, _ = model(**inputs)
        scores, weights = zip(*softmaxes)
        values = [split_heads(qkv, a.heads)[2] for (_, qkv), a in zip(packed, attentions)]
        heads = [
            qk.transpose(1, 2).split(a.heads[:2], dim=1)
            for (_, qk), a in zip(queries_keys, attentions)
        ]
        return {
            "logits": logits,
            "embeddings": model.embed(input_ids),
            "positions": F.embedding(inputs["position_ids"], model.position.table),
            "scores": stacked(scores, model.n_group),
            "attention": stacked(weights, model.n_group),
            "queries": torch.stack([q for q, _ in heads], 1),
            "keys": torch.stack([k for _, k in heads], 1),
            "values": torch.stack(values, 1),
            "normed": torch.stack([y for _, y in normed], 1).unflatten(1, (-1, 2)),
        }


class InspectSeq2Seq(nn.Module):
    """Maps input_ids (B, S) of the source and decoder_input_ids (B, T) to named tensors."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> dict[str, Tensor]:
        """Return logits (B, T, V) and the weights of the three attentions: the encoder's
        (B, L, H, S, S), the decoder's (B, L, H, T, T), and cross-attention (B, L, H, T, S)."""
        model = self.model
        masks = [torch.ones_like(ids) for ids in (input_ids, decoder_input_ids)]
        with (
            recorded(softmaxes_of(model, "attention", "encoder_blocks")) as encoder,
            recorded(softmaxes_of(model, "attention")) as decoder,
            recorded(softmaxes_of(model, "cross_attention")) as cross,
        ):
            logits = model(input_ids, masks[0], decoder_input_ids, masks[1])
        seen = {"encoder": encoder, "decoder": decoder, "cross": cross}
        attentions = {
            f"{name}_attention": stacked((weights for _, weights in layers), model.n_group)
            for name, layers in seen.items()
        }
        return {"logits": logits, **attentions}


def softmaxes_of(model: GPT | Seq2Seq, attention: str, blocks: str = "blocks") -> list[nn.Module]:
    """Return each block's `AttentionSoftmax` of the attention with this name."""
    n = len(model.get_submodule(blocks))  # type: ignore[arg-type]
    return [model.get_submodule(f"{blocks}.{i}.{attention}.softmax") for i in range(n)]


def split_heads(qkv: Tensor, heads: list[int]) -> tuple[Tensor, ...]:
    """Split a packed projection (B, T, sum(heads) * D) into tensors (B, n, T, D)."""
    by_head = qkv.unflatten(-1, (sum(heads), -1)).transpose(1, 2)
    return by_head.split(heads, dim=1)


@contextmanager
def recorded(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Record the first input and the output of each call of the modules, in their order."""
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
        for module in modules
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def stacked(layers: Iterable[Tensor], n_group: int) -> Tensor:
    """Stack what attentions compute, (B, K, T * G, S) of each layer, as (B, L, K * G, T, S)."""
    return torch.stack([ungroup(x, n_group) for x in layers], 1)


def ungroup(x: Tensor, n_group: int) -> Tensor:
    """Separate the query heads of each group: (B, K, T * G, S) -> (B, K * G, T, S)."""
    B, K, _, S = x.shape
    return x.view(B, K, -1, n_group, S).transpose(2, 3).reshape(B, K * n_group, -1, S)


WRAPPERS = {GPT: InspectGPT, Seq2Seq: InspectSeq2Seq}


# ------------------------------------------------------------------ the graph


def write_inspect(model: GPT | Seq2Seq, path: Path) -> None:
    """Write the graph, with the outputs that the modules above document."""
    inputs, outputs = gpt_axes(model) if isinstance(model, GPT) else seq2seq_axes(model.config)
    sizes = zip(inputs, (3, 5))  # no two axes have the same
    example = {name: torch.ones(2, size, dtype=torch.long) for name, size in sizes}
    write_graph(WRAPPERS[type(model)](model), example, inputs, outputs, path)


def gpt_axes(model: GPT) -> tuple[Axes, Axes]:
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
    return {"input_ids": tokens}, outputs


def seq2seq_axes(config: Seq2SeqConfig) -> tuple[Axes, Axes]:
    source, target = ["batch_size", "encoder_sequence_length"], ["batch_size", "sequence_length"]
    heads = [config.n_layer, config.n_head]
    outputs = {
        "logits": [*target, config.vocab_size],
        "encoder_attention": [
            "batch_size", config.n_encoder_layer, config.n_head, source[1], source[1]
        ],
        "decoder_attention": ["batch_size", *heads, target[1], target[1]],
        "cross_attention": ["batch_size", *heads, target[1], source[1]],
    }  # fmt: skip
    return {"input_ids": source, "decoder_input_ids": target}, outputs


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
