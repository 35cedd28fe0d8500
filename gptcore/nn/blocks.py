"""A block: attention and feed-forward, each with its residual.

>>> from gptcore.config import PRESETS
>>> sum(p.numel() for p in Block(PRESETS["tiny"]).parameters())
36992
"""

from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.layers import FEED_FORWARDS, NORMS, Cache, GroupedAttention


class Block(nn.Module):
    """Pre-norm residual block: x + f(norm(x)), once for attention, once for feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        norm = NORMS[config.norm]
        self.attention_norm = norm(config.n_embd, config.norm_eps)
        self.attention = GroupedAttention(config)
        self.feed_forward_norm = norm(config.n_embd, config.norm_eps)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        """x: (B, T, C) -> (B, T, C), and the cache with T more positions."""
        y, cache = self.attention(self.attention_norm(x), rotation, bias, past)
        x = x + self.dropout(y)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x, cache
