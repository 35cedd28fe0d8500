"""A wrapper of a model that also returns its attention; exported as onnx/inspect.onnx.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn.gpt import GPT
    >>> seen = InspectGPT(GPT(PRESETS["tiny"]))(torch.tensor([[1, 2, 3]]))
    >>> seen["attention"].shape       # batch, layer, head, query, key
    torch.Size([1, 2, 4, 3, 3])

The model itself is unchanged: hooks on its `Weights` modules record their inputs and outputs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
        of all layers the scores before the mask and the attention weights, (B, L, H, T, T) each."""
        model = self.model
        inputs = whole_sequence(input_ids)
        with watched(weights_of(model, "attention"), model.n_group) as seen:
            logits, _ = model(**inputs)
        return {
            "logits": logits,
            "embeddings": model.embed(input_ids),
            "positions": F.embedding(inputs["position_ids"], model.position.table),
            "scores": torch.stack([scores for scores, _ in seen], 1),
            "attention": torch.stack([weights for _, weights in seen], 1),
        }


class InspectSeq2Seq(nn.Module):
    """Maps input_ids (B, S) of the source and decoder_input_ids (B, T) to named tensors."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> dict[str, Tensor]:
        """Return logits (B, T, V) and the cross-attention weights (B, L, H, T, S)."""
        model = self.model
        masks = [torch.ones_like(ids) for ids in (input_ids, decoder_input_ids)]
        with watched(weights_of(model, "cross_attention"), model.n_group) as seen:
            logits = model(input_ids, masks[0], decoder_input_ids, masks[1])
        weights = torch.stack([weights for _, weights in seen], 1)
        return {"logits": logits, "cross_attention": weights}


def weights_of(model: GPT | Seq2Seq, attention: str) -> list[nn.Module]:
    """Return each block's `Weights` module of the attention with this name."""
    return [
        model.get_submodule(f"blocks.{i}.{attention}.weights") for i in range(len(model.blocks))
    ]


@contextmanager
def watched(weights: list[nn.Module], n_group: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Record scores and weights (B, H, T, S) of each attention while the context is entered."""
    seen: list[tuple[Tensor, Tensor]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, Tensor], weights: Tensor) -> None:
        seen.append((ungroup(inputs[0], n_group), ungroup(weights, n_group)))

    hooks = [module.register_forward_hook(note) for module in weights]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def ungroup(x: Tensor, n_group: int) -> Tensor:
    """Separate the query heads of each group: (B, K, T * G, S) -> (B, K * G, T, S)."""
    B, K, _, S = x.shape
    return x.view(B, K, -1, n_group, S).transpose(2, 3).reshape(B, K * n_group, -1, S)
