"""Blocks of sublayers, each with a residual connection and a norm.

>>> from gptcore.config import PRESETS
>>> sum(p.numel() for p in Block(PRESETS["tiny"]).parameters())
36992
"""

from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.attention import Cache, CrossAttention, GroupedAttention
from gptcore.nn.layers import FEED_FORWARDS, NORMS, Rotation


class PreNorm(nn.Module):
    """A residual connection with the norm before the sublayer: x + f(norm(x)) (arXiv 2002.04745).

    A block calls `before`, its sublayer f, and `after`; all of them map (B, T, C) to the same.
    """

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x)

    def after(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        return x + self.dropout(y)


class PostNorm(PreNorm):
    """The same with the norm after the sum: norm(x + f(x)) (arXiv 1706.03762, section 3.1)."""

    def before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return x

    def after(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        return norm(x + self.dropout(y))


RESIDUALS = {"pre": PreNorm, "post": PostNorm}


def build_norms(config: ModelConfig, n: int) -> list[nn.Module]:
    """Build n norms, or one that is shared by all n sublayers."""
    n_norm = 1 if config.shared_norm else n
    norms = [NORMS[config.norm](config.n_embd, config.norm_eps) for _ in range(n_norm)]
    return norms * (n // n_norm)


class Block(nn.Module):
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
        before, after = self.residual.before, self.residual.after
        y, cache = self.attention(before(x, self.attention_norm), rotation, bias, past)
        x = after(x, y, self.attention_norm)
        y = self.feed_forward(before(x, self.feed_forward_norm))
        return after(x, y, self.feed_forward_norm), cache


class CrossBlock(nn.Module):
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
        before, after = self.residual.before, self.residual.after
        y, cache = self.attention(before(x, self.attention_norm), rotation, bias, past)
        x = after(x, y, self.attention_norm)
        y = self.cross_attention(before(x, self.cross_norm), memory, memory_bias)
        x = after(x, y, self.cross_norm)
        y = self.feed_forward(before(x, self.feed_forward_norm))
        return after(x, y, self.feed_forward_norm), cache
