"""The layers, and a registry for each axis of the configuration.

What a layer is gets decided once, in a constructor; no `forward` asks the configuration.
Shape letters: B batch, T query length, S key length, C n_embd, H query heads, K key/value
heads, G = H / K query heads that share one key/value head, D head size, V vocabulary.

The formulas are written in the form that ONNX Runtime recognises and fuses, because the
exported graph is this very code.

    >>> x = torch.randn(2, 3, 8)
    >>> RMSNorm(8)(x).shape
    torch.Size([2, 3, 8])
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.config import ModelConfig

Cache = tuple[Tensor, Tensor]  # keys and values, each (B, K, S, D)

# A finite stand-in for minus infinity: a row with every key masked gives no NaN.
MASKED = -3e38


class RMSNorm(nn.Module):
    """Root mean square norm (arXiv 1910.07467): (B, T, C) -> (B, T, C)."""

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # Not rsqrt, not x * x: ONNX Runtime fuses exactly this form into one operator.
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Rotary(nn.Module):
    """Rotary positions (arXiv 2104.09864), halves paired as in Llama."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        angle = torch.outer(
            torch.arange(config.block_size, dtype=torch.float64), config.rope_theta**-half
        )
        # The sign of the second term of the rotation is folded into the table.
        cos = torch.cat([angle.cos(), angle.cos()], -1).float()
        sin = torch.cat([-angle.sin(), angle.sin()], -1).float()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) -> cos and sin, each (B, T, 1, D)."""
        cos, sin = F.embedding(position_ids, self.cos), F.embedding(position_ids, self.sin)
        return cos.unsqueeze(2), sin.unsqueeze(2)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn queries and keys by their positions: (B, T, heads, D) -> (B, T, heads, D)."""
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([second, first], dim=-1) * sin


def attention_bias(attention_mask: Tensor, n_query: int, n_group: int) -> Tensor:
    """(B, S) mask of real tokens -> (B, 1, T * G, S), 0 to attend and MASKED not to.

    The T queries are the last of the S positions; each sees itself and what came before.
    A row is repeated for the G query heads of a group (see GroupedAttention).
    """
    n_key = attention_mask.shape[1]
    key = torch.arange(n_key, device=attention_mask.device)
    query = torch.arange(n_query, device=attention_mask.device) + (n_key - n_query)
    visible = (key[None, :] <= query[:, None])[None] & (attention_mask != 0)[:, None, :]
    bias = torch.where(visible, 0.0, MASKED)  # (B, T, S)
    return bias.unsqueeze(2).expand(-1, -1, n_group, -1).flatten(1, 2).unsqueeze(1)


class GroupedAttention(nn.Module):
    """Causal self-attention, G query heads to a key/value head (arXiv 2305.13245).

    The queries of a group are stacked along T, so that keys and values are never repeated.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_kv_head, self.head_dim = config.n_kv_head, config.head_dim
        self.n_group = config.n_head // config.n_kv_head
        self.heads = [config.n_head, config.n_kv_head, config.n_kv_head]
        self.qkv = nn.Linear(config.n_embd, sum(self.heads) * config.head_dim, bias=False)
        self.out = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.scale = config.head_dim**-0.5

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        """x: (B, T, C), past: (B, K, S - T, D) each -> (B, T, C), (B, K, S, D) each."""
        B, T, C = x.shape
        K, G, D = self.n_kv_head, self.n_group, self.head_dim
        n_turned = self.heads[0] + self.heads[1]
        qkv = self.qkv(x).view(B, T, sum(self.heads), D)
        qk, v = qkv.split([n_turned, self.heads[2]], dim=2)
        q, k = rotate(qk, rotation).split(self.heads[:2], dim=2)
        q = (q * self.scale).reshape(B, T, K, G, D).transpose(1, 2).reshape(B, K, T * G, D)
        k, v = extend(past, k.transpose(1, 2), v.transpose(1, 2))

        scores = q @ k.transpose(-2, -1)  # (B, K, T * G, S)
        weights = self.dropout((scores + bias.to(scores.dtype)).softmax(-1))
        y = (weights @ v).view(B, K, T, G, D).transpose(1, 2).reshape(B, T, C)
        return self.out(y), (k, v)


def extend(past: Cache | None, k: Tensor, v: Tensor) -> Cache:
    """Append new keys and values to the cached ones."""
    if past is None:
        return k, v
    return torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)


class SwiGLU(nn.Module):
    """Gated feed-forward (arXiv 2002.05202), gate and up in one matrix: (B, T, C) -> same."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate_up = nn.Linear(config.n_embd, 2 * config.n_inner, bias=False)
        self.down = nn.Linear(config.n_inner, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


NORMS = {"rmsnorm": RMSNorm}
POSITIONS = {"rotary": Rotary}
FEED_FORWARDS = {"swiglu": SwiGLU}
