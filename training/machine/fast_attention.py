"""Faster forms of causal self-attention for training, with the same result.

A model is built with the form that is exported (GroupedAttention.attend). `use_fast_attention`
replaces it from outside, so that no `forward` needs to know where it runs.

    >>> from gptcore.config import PRESETS
    >>> model = GPT(PRESETS["tiny"])
    >>> use_fast_attention(model, torch.device("cpu"))

The forms are for decoders, where no query sees a later key. Rows may be padded on the right alone,
where that hides the padding, too.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gptcore.nn.attention import GroupedAttention
from gptcore.nn.gpt import GPT

QUERIES = 128  # number of positions whose queries are computed together


def use_fast_attention(model: GPT, device: torch.device) -> None:
    # A method bound to its own module would keep a model in memory that nobody uses any more.
    form = Fused if device.type == "cuda" else InParts
    for block in model.blocks:
        block.attention.__class__ = form  # type: ignore[assignment]


class InParts(GroupedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Split the queries; each part skips the keys after its last query, nearly half of all."""
        G, past = self.n_group, k.shape[2] - q.shape[2] // self.n_group
        parts, end = [], past
        for q_part, bias_part in zip(q.split(QUERIES * G, 2), bias.split(QUERIES * G, 2)):
            end += q_part.shape[2] // G
            scores = q_part @ k[:, :, :end].transpose(-2, -1)
            parts.append(self.softmax(scores, bias_part[..., :end]) @ v[:, :, :end])
        return torch.cat(parts, 2)


class Fused(GroupedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Call PyTorch's fused operator (on CUDA FlashAttention, arXiv 2205.14135).

        It ignores `bias`, which would disable the fast kernel.
        """
        B, K, rows, D = q.shape
        G, S = self.n_group, k.shape[2]
        if rows != S * G:  # with cached keys, as in generation, is_causal means something else
            return super().attend(q, k, v, bias)
        heads = q.view(B, K, S, G, D).transpose(2, 3).reshape(B, K * G, S, D)
        k = k.to(v.dtype)
        if v.dtype == torch.float32:  # no fp32 kernel of CUDA shares keys between heads
            k, v = k.repeat_interleave(G, 1), v.repeat_interleave(G, 1)
        y = F.scaled_dot_product_attention(
            heads.to(v.dtype),
            k,
            v,
            dropout_p=self.softmax.dropout.p if self.training else 0.0,
            is_causal=True,
            scale=1.0,  # the queries are already scaled
            enable_gqa=True,
        )
        return y.view(B, K, G, S, D).transpose(2, 3).reshape(B, K, rows, D)
