"""A model that also returns what its attention saw; exported as onnx/inspect.onnx.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn.gpt import GPT
    >>> seen = InspectGPT(GPT(PRESETS["tiny"]))(torch.tensor([[1, 2, 3]]))
    >>> seen["attention"].shape       # batch, layer, head, query, key
    torch.Size([1, 2, 4, 3, 3])

The model itself is not changed: hooks on its `Weights` modules look at what passes through.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.seq2seq import Seq2Seq


class InspectGPT(nn.Module):
    """input_ids (B, T) -> tensors by name, without a cache."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        """logits (B, T, V), embeddings (B, T, C), positions (1, T, the table's width), and for
        all layers scores before the mask and attention weights, each (B, L, H, T, T)."""
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
    """input_ids (B, S) of the source, decoder_input_ids (B, T) -> tensors by name."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> dict[str, Tensor]:
        """logits (B, T, V) and the decoder's attention to the source (B, L, H, T, S)."""
        model = self.model
        masks = [torch.ones_like(ids) for ids in (input_ids, decoder_input_ids)]
        with watched(weights_of(model, "cross_attention"), model.n_group) as seen:
            logits = model(input_ids, masks[0], decoder_input_ids, masks[1])
        weights = torch.stack([weights for _, weights in seen], 1)
        return {"logits": logits, "cross_attention": weights}


def weights_of(model: GPT | Seq2Seq, attention: str) -> list[nn.Module]:
    """The module between scores and weights in each block's attention of this name."""
    return [
        model.get_submodule(f"blocks.{i}.{attention}.weights") for i in range(len(model.blocks))
    ]


@contextmanager
def watched(weights: list[nn.Module], n_group: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """While entered, a list of what each attention computes: scores and weights (B, H, T, S)."""
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
    """Query heads apart again: (B, K, T * G, S) -> (B, K * G, T, S)."""
    B, K, _, S = x.shape
    return x.view(B, K, -1, n_group, S).transpose(2, 3).reshape(B, K * n_group, -1, S)
