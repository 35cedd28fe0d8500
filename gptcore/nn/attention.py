"""Self-attention, and cross-attention of the decoder to the encoder's output.

Shape letters are those of gptcore/nn/layers.py. The G query heads of a group are stacked along
T, so that the keys and values they share are never repeated.

    >>> from gptcore.config import PRESETS
    >>> bias = causal_bias(torch.ones(1, 3), n_query=3, n_group=1)
    >>> (bias[0, 0] == 0).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
"""

import torch
from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.layers import NORMS, POSITIONS, PackedLinear, Rotation

Cache = tuple[Tensor, Tensor]  # keys and values, each (B, K, S, D)

# A finite stand-in for minus infinity, so that a row with every key masked gives no NaN.
MASKED = -3e38


def causal_bias(attention_mask: Tensor, n_query: int, n_group: int) -> Tensor:
    """Return a bias (B, 1, T * G, S) from a mask (B, S) of real tokens: 0 visible, MASKED hidden.

    The T queries are the last of the S positions. Each sees itself and the tokens before it.
    Each row is repeated for the G query heads of a group.
    """
    n_key = attention_mask.shape[1]
    key = torch.arange(n_key, device=attention_mask.device)
    query = torch.arange(n_query, device=attention_mask.device) + (n_key - n_query)
    visible = (key[None, :] <= query[:, None])[None] & (attention_mask != 0)[:, None, :]
    bias = torch.where(visible, 0.0, MASKED)  # (B, T, S)
    return bias.unsqueeze(2).expand(-1, -1, n_group, -1).flatten(1, 2).unsqueeze(1)


def padding_bias(attention_mask: Tensor) -> Tensor:
    """Return a bias (B, 1, 1, S) that lets every query see every real token of a mask (B, S)."""
    return torch.where(attention_mask != 0, 0.0, MASKED)[:, None, None, :]


class AttentionSoftmax(nn.Module):
    """Softmax of the scores, with dropout. It is a module so that the export can hook it
    (export/formats/inspection.py)."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, scores: Tensor, bias: Tensor) -> Tensor:
        """Turn scores (B, K, T * G, S) into weights of the same shape whose rows sum to 1.

        bias: any shape that broadcasts to the scores.
        """
        return self.dropout((scores + bias.to(scores.dtype)).softmax(-1))


class QueryKeyNorm(nn.Module):
    """Norms the queries and the keys of each head (arXiv 2302.05442, section 2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads = [config.n_head, config.n_kv_head]
        self.q, self.k = (NORMS[config.norm](config.head_dim, config.norm_eps) for _ in range(2))

    def forward(self, qk: Tensor) -> Tensor:
        """Map packed queries and keys (B, T, H + K, D) to the same shape."""
        q, k = qk.split(self.heads, dim=2)
        return torch.cat([self.q(q), self.k(k)], dim=2)


class GroupedAttention(nn.Module):
    """Grouped-query self-attention: G query heads per key/value head (arXiv 2305.13245)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_kv_head, self.head_dim = config.n_kv_head, config.head_dim
        self.n_group = config.n_head // config.n_kv_head
        self.heads = [config.n_head, config.n_kv_head, config.n_kv_head]
        sizes = [n * config.head_dim for n in self.heads]
        self.qkv = PackedLinear(config.n_embd, sizes, config.qkv_bias)
        self.qk_norm = QueryKeyNorm(config) if config.qk_norm else nn.Identity()
        self.turn = POSITIONS[config.position].turn
        self.softmax = AttentionSoftmax(config.attention_dropout)
        self.out = nn.Linear(sizes[0], config.n_embd, bias=config.out_bias)
        self.scale = config.head_dim**-0.5

    def forward(
        self, x: Tensor, rotation: Rotation, bias: Tensor, past: Cache | None = None
    ) -> tuple[Tensor, Cache]:
        """Map x (B, T, C) and past (B, K, S - T, D) each to (B, T, C) and (B, K, S, D) each."""
        B, T, _ = x.shape
        K, G, D = self.n_kv_head, self.n_group, self.head_dim
        n_turned = self.heads[0] + self.heads[1]
        qkv = self.qkv(x).view(B, T, sum(self.heads), D)
        qk, v = qkv.split([n_turned, self.heads[2]], dim=2)
        q, k = self.turn(self.qk_norm(qk), rotation).split(self.heads[:2], dim=2)
        q = (q * self.scale).reshape(B, T, K, G, D).transpose(1, 2).reshape(B, K, T * G, D)
        k, v = extend(past, k.transpose(1, 2), v.transpose(1, 2))

        y = self.attend(q, k, v, bias).view(B, K, T, G, D).transpose(1, 2).reshape(B, T, K * G * D)
        return self.out(y), (k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Return the attention's output. This form is exported; training has faster ones.

        q: (B, K, T * G, D), scaled; k, v: (B, K, S, D); bias: (B, 1, T * G, S) -> shape of q.
        """
        return self.softmax(q @ k.transpose(-2, -1), bias) @ v


class CrossAttention(nn.Module):
    """Cross-attention of the decoder to the encoder's output (arXiv 1706.03762, section 3.2.3).

    The keys and values of that output are computed once for all steps.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_kv_head, self.head_dim = config.n_kv_head, config.head_dim
        self.n_group = config.n_head // config.n_kv_head
        width = config.n_head * config.head_dim
        self.q = nn.Linear(config.n_embd, width, bias=config.qkv_bias)
        sizes = [config.n_kv_head * config.head_dim] * 2
        self.kv = PackedLinear(config.n_embd, sizes, config.qkv_bias)
        self.softmax = AttentionSoftmax(config.attention_dropout)
        self.out = nn.Linear(width, config.n_embd, bias=config.out_bias)
        self.scale = config.head_dim**-0.5

    def keys_values(self, memory: Tensor) -> Cache:
        """Return keys and values (B, K, S, D) each of the encoder's output (B, S, C)."""
        B, S, _ = memory.shape
        kv = self.kv(memory).view(B, S, 2 * self.n_kv_head, self.head_dim).transpose(1, 2)
        k, v = kv.split([self.n_kv_head, self.n_kv_head], dim=1)
        return k, v

    def forward(self, x: Tensor, memory: Cache, bias: Tensor) -> Tensor:
        """Map x (B, T, C), memory (B, K, S, D) each and bias (B, 1, 1, S) to (B, T, C)."""
        B, T, _ = x.shape
        K, G, D = self.n_kv_head, self.n_group, self.head_dim
        k, v = memory
        q = (self.q(x) * self.scale).view(B, T, K, G, D).transpose(1, 2).reshape(B, K, T * G, D)
        weights = self.softmax(q @ k.transpose(-2, -1), bias)  # (B, K, T * G, S)
        y = (weights @ v).view(B, K, T, G, D).transpose(1, 2).reshape(B, T, K * G * D)
        return self.out(y)


def extend(past: Cache | None, k: Tensor, v: Tensor) -> Cache:
    """Append new keys and values to the cached ones."""
    if past is None:
        return k, v
    return torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
