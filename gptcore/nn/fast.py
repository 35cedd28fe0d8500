"""Other forms of causal self-attention, for training: the same result in less time.

A model is built with the form that is exported (GroupedAttention.attend); one of these is put
in its place from outside, so that no `forward` asks where it runs.

    >>> from gptcore.config import PRESETS
    >>> model = GPT(PRESETS["tiny"])
    >>> use_fast_attention(model, torch.device("cpu"))

They hold for a decoder, where no query sees a later key. `bias` may hide more, as padding.
"""

from types import MethodType

import torch
from torch import Tensor
from torch.nn import functional as F

from gptcore.nn.attention import GroupedAttention
from gptcore.nn.gpt import GPT

QUERIES = 128  # positions whose queries are computed together


def use_fast_attention(model: GPT, device: torch.device) -> None:
    attend = fused if device.type == "cuda" else in_parts
    for block in model.blocks:
        attention = block.attention
        attention.attend = MethodType(attend, attention)  # type: ignore[union-attr]


def in_parts(self: GroupedAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Each part of the queries with no keys behind its last: nearly half of them are."""
    G, past = self.n_group, k.shape[2] - q.shape[2] // self.n_group
    parts, end = [], past
    for q_part, bias_part in zip(q.split(QUERIES * G, 2), bias.split(QUERIES * G, 2)):
        end += q_part.shape[2] // G
        scores = q_part @ k[:, :, :end].transpose(-2, -1)
        parts.append(self.weights(scores, bias_part[..., :end]) @ v[:, :, :end])
    return torch.cat(parts, 2)


def fused(self: GroupedAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """PyTorch's one operator (FlashAttention, arXiv 2205.14135, on CUDA), of whole rows.

    It takes no `bias`, which would keep it from the fast kernel: rows are not padded in front.
    """
    B, K, rows, D = q.shape
    G, S = self.n_group, k.shape[2]
    if rows != S * G:  # cached keys, as in samples: its causal mask is not ours
        return GroupedAttention.attend(self, q, k, v, bias)
    heads = q.view(B, K, S, G, D).transpose(2, 3).reshape(B, K * G, S, D)
    y = F.scaled_dot_product_attention(
        heads.to(v.dtype),
        k.to(v.dtype),
        v,
        dropout_p=self.weights.dropout.p if self.training else 0.0,
        is_causal=True,
        scale=1.0,  # the queries are scaled already
        enable_gqa=True,
    )
    return y.view(B, K, G, S, D).transpose(2, 3).reshape(B, K, rows, D)
