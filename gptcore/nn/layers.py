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

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.config import ModelConfig


class RMSNorm(nn.Module):
    """Root mean square norm (arXiv 1910.07467): (B, T, C) -> (B, T, C)."""

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # Not rsqrt, not x * x: ONNX Runtime fuses exactly this form into one operator.
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class UnbiasedLayerNorm(nn.Module):
    """The Annotated Transformer's layer norm: (B, T, C) -> (B, T, C).

    It divides by the unbiased standard deviation plus eps, where arXiv 1607.06450 takes the
    root of the biased variance plus eps.
    """

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        deviation = torch.sqrt(x.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1))
        return self.weight * x / (deviation + self.eps) + self.bias


class ScaledEmbedding(nn.Embedding):
    """Embeddings times sqrt(C) (arXiv 1706.03762, section 3.4): (B, T) -> (B, T, C)."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * math.sqrt(self.embedding_dim)


Rotation = tuple[Tensor, ...]  # what attention needs to turn queries and keys; may be empty


class Rotary(nn.Module):
    """Rotary positions (arXiv 2104.09864), halves paired as in Llama: they turn q and k."""

    cos: Tensor  # (positions, D)
    sin: Tensor

    def __init__(self, config: ModelConfig):
        super().__init__()
        n_position = config.n_position or config.block_size
        position = torch.arange(n_position, dtype=torch.float64)
        angle = torch.outer(position, self.frequencies(config))
        # The sign of the second term of the rotation is folded into the table.
        cos = torch.cat([angle.cos(), angle.cos()], -1).float()
        sin = torch.cat([-angle.sin(), angle.sin()], -1).float()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @staticmethod
    def frequencies(config: ModelConfig) -> Tensor:
        """(D / 2,) by how many radians each pair turns from one position to the next."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        return config.rope_theta**-half

    @property
    def table(self) -> Tensor:
        """A row for each position, as the absolute kinds have it."""
        return self.cos

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Rotation]:
        """x as it is, and for (B, T) positions cos and sin, each (B, T, 1, D)."""
        cos, sin = F.embedding(position_ids, self.cos), F.embedding(position_ids, self.sin)
        return x, (cos.unsqueeze(2), sin.unsqueeze(2))

    @staticmethod
    def turn(x: Tensor, rotation: Rotation) -> Tensor:
        """Turn queries and keys by their positions: (B, T, heads, D) -> (B, T, heads, D)."""
        cos, sin = rotation
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([second, first], dim=-1) * sin


class Llama3Rotary(Rotary):
    """Rotary positions stretched to a longer context (Llama 3.1, arXiv 2407.21783, 3.4.2)."""

    @staticmethod
    def frequencies(config: ModelConfig) -> Tensor:
        frequency = Rotary.frequencies(config)
        turns = config.rope_context * frequency / (2 * math.pi)
        share = (turns - config.rope_slow) / (config.rope_fast - config.rope_slow)
        kept = share.clamp(0.0, 1.0)
        return kept * frequency + (1 - kept) * frequency / config.rope_factor


class AbsolutePositions(nn.Module):
    """A table with a row for each position, added to the embeddings."""

    table: Tensor  # (positions, C)

    def __init__(self, table: Tensor):
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Rotation]:
        """x: (B, T, C), position_ids: (B, T) -> (B, T, C), and nothing to turn by."""
        return x + F.embedding(position_ids, self.table), ()

    @staticmethod
    def turn(x: Tensor, rotation: Rotation) -> Tensor:
        return x


class Sinusoidal(AbsolutePositions):
    """Sines in the even columns, cosines in the odd ones (arXiv 1706.03762, section 3.5)."""

    def __init__(self, config: ModelConfig):
        n_position = config.n_position or config.block_size
        half = torch.arange(0, config.n_embd, 2, dtype=torch.float64) / config.n_embd
        angle = torch.outer(torch.arange(n_position, dtype=torch.float64), 10000.0**-half)
        super().__init__(
            nn.Buffer(
                torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float(), persistent=False
            )
        )


class Learned(AbsolutePositions):
    """Learned positions (GPT-2)."""

    def __init__(self, config: ModelConfig):
        n_position = config.n_position or config.block_size
        super().__init__(nn.Parameter(torch.randn(n_position, config.n_embd)))


class PackedLinear(nn.Linear):
    """Several matrices of one input as one, `sizes` outputs each."""

    def __init__(self, n_in: int, sizes: list[int], bias: bool):
        super().__init__(n_in, sum(sizes), bias=bias)
        self.sizes = sizes


class SwiGLU(nn.Module):
    """Gated feed-forward (arXiv 2002.05202), gate and up in one matrix: (B, T, C) -> same."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        bias, sizes = config.feed_forward_bias, [config.n_inner, config.n_inner]
        self.gate_up = PackedLinear(config.n_embd, sizes, bias)
        self.dropout = nn.Dropout(config.inner_dropout)
        self.down = nn.Linear(config.n_inner, config.n_embd, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.dropout(F.silu(gate) * up))


class FeedForward(nn.Module):
    """Two matrices (arXiv 1706.03762, section 3.3): (B, T, C) -> same."""

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.n_inner, bias=config.feed_forward_bias)
        self.activation = activation
        self.dropout = nn.Dropout(config.inner_dropout)
        self.down = nn.Linear(config.n_inner, config.n_embd, bias=config.feed_forward_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


class NormFeedForward(FeedForward):
    """A feed-forward with a norm of its own in front, on top of its block's."""

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__(config, activation)
        self.norm = NORMS[config.norm](config.n_embd, config.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


NORMS = {"rmsnorm": RMSNorm, "layernorm": nn.LayerNorm, "unbiased_layernorm": UnbiasedLayerNorm}
EMBEDDINGS = {False: nn.Embedding, True: ScaledEmbedding}
POSITIONS = {
    "rotary": Rotary,
    "llama3_rotary": Llama3Rotary,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
}
FEED_FORWARDS = {
    "swiglu": SwiGLU,
    "relu": partial(FeedForward, activation=F.relu),
    "gelu": partial(FeedForward, activation=F.gelu),
    "norm_relu": partial(NormFeedForward, activation=F.relu),
}
