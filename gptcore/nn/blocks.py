"""Blocks of sublayers, each with a residual connection and a norm.

>>> from gptcore.config import PRESETS
>>> sum(p.numel() for p in Block(PRESETS["tiny"]).parameters())
36992
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.attention import Cache, CrossAttention, GroupedAttention
from gptcore.nn.layers import FEED_FORWARDS, NORMS, Rotation

Sublayer = Callable[[Tensor], Tensor]  # (B, T, C) -> (B, T, C)


class PreNorm(nn.Module):
    """A residual sublayer with the norm before it: x + f(norm(x)) (arXiv 2002.04745)."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, norm: nn.Module, f: Sublayer) -> Tensor:
        return x + self.dropout(f(norm(x)))


class PostNorm(PreNorm):
    """A residual sublayer with the norm after the sum (arXiv 1706.03762, section 3.1)."""

    def forward(self, x: Tensor, norm: nn.Module, f: Sublayer) -> Tensor:
        return norm(x + self.dropout(f(x)))


RESIDUALS = {"pre": PreNorm, "post": PostNorm}


def build_norms(config: ModelConfig, n: int) -> list[nn.Module]:
    """Build n norms, or one that is shared by all n sublayers."""
    n_norm = 1 if config.shared_norm else n
    norms = [NORMS[config.norm](config.n_embd, config.norm_eps) for _ in range(n_norm)]
    return norms * (n // n_norm)


class AttentionBlock(nn.Module):
    """What the blocks have in common: self-attention with its cache, norm and residual."""

    residual: PreNorm
    attention_norm: nn.Module
    attention: GroupedAttention

    def attend(
        self, x: Tensor, rotation: Rotation, bias: Tensor, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        cache: Cache

        def attention(x: Tensor) -> Tensor:
            nonlocal cache
            y, cache = self.attention(x, rotation, bias, past)
            return y

        return self.residual(x, self.attention_norm, attention), cache


class Block(AttentionBlock):
    """Self-attention and feed-forward; the bias given to `forward` makes it causal or not."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.residual = RESIDUALS[config.residual](config.dropout)
        self.attention_norm, self.feed_forward_norm = build_norms(config, 2)
        self.attention = GroupedAttention(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)

    def forward(
        self, x: Tensor, rotation: Rotation, bias: Tensor, past: Cache | None = None
    ) -> tuple[Tensor, Cache]:
        """Map x (B, T, C) to the same shape; also return the cache, extended by T positions."""
        x, cache = self.attend(x, rotation, bias, past)
        x = self.residual(x, self.feed_forward_norm, self.feed_forward)
        return x, cache


class CrossBlock(AttentionBlock):
    """A decoder block with cross-attention between self-attention and feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.residual = RESIDUALS[config.residual](config.dropout)
        self.attention_norm, self.cross_norm, self.feed_forward_norm = build_norms(config, 3)
        self.memory_norm = self.attention_norm if config.shared_norm else nn.Identity()
        self.attention = GroupedAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)

    def keys_values(self, memory: Tensor) -> Cache:
        """Return the keys and values (B, K, S, D) each of the encoder's output (B, S, C)."""
        return self.cross_attention.keys_values(self.memory_norm(memory))

    def forward(
        self,
        x: Tensor,
        rotation: Rotation,
        bias: Tensor,
        past: Cache | None,
        memory: Cache,
        memory_bias: Tensor,
    ) -> tuple[Tensor, Cache]:
        """Map x (B, T, C) to the same shape; also return the cache, extended by T positions."""
        x, cache = self.attend(x, rotation, bias, past)
        cross_attention = partial(self.cross_attention, memory=memory, bias=memory_bias)
        x = self.residual(x, self.cross_norm, cross_attention)
        x = self.residual(x, self.feed_forward_norm, self.feed_forward)
        return x, cache
