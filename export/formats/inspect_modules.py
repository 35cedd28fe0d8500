"""A wrapper of a model that also returns its attention; exported as onnx/inspect.onnx.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn.gpt import GPT
    >>> seen = InspectGPT(GPT(PRESETS["tiny"]))(torch.tensor([[1, 2, 3]]))
    >>> seen["attention"].shape       # batch, layer, head, query, key
    torch.Size([1, 2, 4, 3, 3])

The model itself is unchanged: hooks on its `AttentionSoftmax` modules record what goes in and out.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        norms = {id(m): m for b in blocks for m in (b.attention_norm, b.feed_forward_norm)}.values()
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
