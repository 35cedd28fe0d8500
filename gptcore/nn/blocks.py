"""Blocks: sublayers, each with its residual and norm. RESIDUALS says where the norm stands.

>>> from gptcore.config import PRESETS
>>> sum(p.numel() for p in Block(PRESETS["tiny"]).parameters())
36992
"""

from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.attention import Cache, CrossAttention, GroupedAttention
from gptcore.nn.layers import FEED_FORWARDS, NORMS, Rotation


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))) (arXiv 2002.04745)."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What the sublayer reads."""
        return norm(x)

    def leave(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        """What follows from the input x and the sublayer's output y."""
        return x + self.dropout(y)


class PostNorm(PreNorm):
    """norm(x + dropout(f(x))) (arXiv 1706.03762, section 3.1)."""

    def enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        return x

    def leave(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        return norm(x + self.dropout(y))


RESIDUALS = {"pre": PreNorm, "post": PostNorm}


def build_norms(config: ModelConfig, n: int) -> list[nn.Module]:
    """A norm for each of n sublayers, or one for them all."""
    n_norm = 1 if config.shared_norm else n
    norms = [NORMS[config.norm](config.n_embd, config.norm_eps) for _ in range(n_norm)]
    return norms * (n // n_norm)


class Block(nn.Module):
    """Attention and feed-forward. The bias makes it a decoder's block or an encoder's."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.residual = RESIDUALS[config.residual](config.dropout)
        self.attention_norm, self.feed_forward_norm = build_norms(config, 2)
        self.attention = GroupedAttention(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)

    def forward(
        self, x: Tensor, rotation: Rotation, bias: Tensor, past: Cache | None = None
    ) -> tuple[Tensor, Cache]:
        """x: (B, T, C) -> (B, T, C), and the cache with T more positions."""
        enter, leave = self.residual.enter, self.residual.leave
        y, cache = self.attention(enter(x, self.attention_norm), rotation, bias, past)
        x = leave(x, y, self.attention_norm)
        y = self.feed_forward(enter(x, self.feed_forward_norm))
        return leave(x, y, self.feed_forward_norm), cache


class CrossBlock(nn.Module):
    """A Block that, between its two sublayers, attends to the encoder's output."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.residual = RESIDUALS[config.residual](config.dropout)
        self.attention_norm, self.cross_norm, self.feed_forward_norm = build_norms(config, 3)
        self.memory_norm = self.attention_norm if config.shared_norm else nn.Identity()
        self.attention = GroupedAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)

    def keys_values(self, memory: Tensor) -> Cache:
        """The encoder's output (B, S, C) -> what `forward` needs of it, (B, K, S, D) each."""
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
        """x: (B, T, C) -> (B, T, C), and the cache with T more positions."""
        enter, leave = self.residual.enter, self.residual.leave
        y, cache = self.attention(enter(x, self.attention_norm), rotation, bias, past)
        x = leave(x, y, self.attention_norm)
        y = self.cross_attention(enter(x, self.cross_norm), memory, memory_bias)
        x = leave(x, y, self.cross_norm)
        y = self.feed_forward(enter(x, self.feed_forward_norm))
        return leave(x, y, self.feed_forward_norm), cache
