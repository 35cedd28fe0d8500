"""The layers, and a registry of classes for each choice in the configuration.

A constructor decides which layers a model has; no `forward` asks the configuration.
Shape letters: B batch, T query length, S key length, C n_embd, H query heads, K key/value
heads, G = H / K query heads per key/value head, D head size, V vocabulary size.

The formulas are written in the form that ONNX Runtime recognises and fuses, because this
code is what gets exported.

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
        # ONNX Runtime fuses exactly this form into one operator, and neither rsqrt nor x * x.
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class UnbiasedLayerNorm(nn.Module):
    """The Annotated Transformer's layer norm: (B, T, C) -> (B, T, C).

    It divides by (unbiased standard deviation + eps). arXiv 1607.06450 divides by the root of
    (biased variance + eps).
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
    """Embeddings multiplied by sqrt(C) (arXiv 1706.03762, section 3.4): (B, T) -> (B, T, C)."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * math.sqrt(self.embedding_dim)


Rotation = tuple[Tensor, ...]  # the tensors with which attention rotates q and k; may be empty


class Rotary(nn.Module):
    """Rotary positions (arXiv 2104.09864) that rotate q and k, with Llama's pairing of halves."""

    cos: Tensor  # (positions, D / 2)
    sin: Tensor

    def __init__(self, config: ModelConfig):
        super().__init__()
        n_position = config.n_position or config.block_size
        position = torch.arange(n_position, dtype=torch.float64)
        angle = torch.outer(position, self.frequencies(config))
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    @staticmethod
    def frequencies(config: ModelConfig) -> Tensor:
        """Return the frequencies (D / 2,): radians per position by which each pair is rotated."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        return config.rope_theta**-half

    @property
    def table(self) -> Tensor:
        """The cosines, one row per position, as absolute positions have a table."""
        return self.cos

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Rotation]:
        """Return x unchanged, and for positions (B, T) cos and sin, (B, T, 1, D) each."""
        cos = F.embedding(position_ids, self.cos).unsqueeze(2)
        sin = F.embedding(position_ids, self.sin).unsqueeze(2)
        return x, (torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    @staticmethod
    def turn(x: Tensor, rotation: Rotation) -> Tensor:
        """Rotate queries or keys (B, T, heads, D) by their positions; return the same shape."""
        cos, sin = rotation
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([second, first], dim=-1) * sin


class Llama3Rotary(Rotary):
    """Rotary positions extended to a longer context, as in the published code of Llama 3.1.

    transformers calls them rope_type llama3: high frequencies stay, low ones are divided.
    """

    @staticmethod
    def frequencies(config: ModelConfig) -> Tensor:
        frequency = Rotary.frequencies(config)
        turns = config.rope_context * frequency / (2 * math.pi)
        share = (turns - config.rope_slow) / (config.rope_fast - config.rope_slow)
        kept = share.clamp(0.0, 1.0)
        return kept * frequency + (1 - kept) * frequency / config.rope_factor


class AbsolutePositions(nn.Module):
    """A table with one row per position, added to the embeddings."""

    table: Tensor  # (positions, C)

    def __init__(self, table: Tensor):
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Rotation]:
        """Add the rows of position_ids (B, T) to x (B, T, C); also return an empty rotation."""
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
    """Learned position embeddings, as in GPT-2."""

    def __init__(self, config: ModelConfig):
        n_position = config.n_position or config.block_size
        super().__init__(nn.Parameter(torch.randn(n_position, config.n_embd)))


class PackedLinear(nn.Linear):
    """Several linear layers of one input, packed into one; `sizes` are their output widths."""

    def __init__(self, n_in: int, sizes: list[int], bias: bool):
        super().__init__(n_in, sum(sizes), bias=bias)
        self.sizes = sizes


def packed(model: nn.Module) -> dict[Tensor, list[int]]:
    """Return the number of rows of each matrix, for each weight that packs several."""
    return {m.weight: m.sizes for m in model.modules() if isinstance(m, PackedLinear)}


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
    """Two linear layers with an activation between (arXiv 1706.03762, 3.3): (B, T, C) -> same."""

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.n_inner, bias=config.feed_forward_bias)
        self.activation = activation
        self.dropout = nn.Dropout(config.inner_dropout)
        self.down = nn.Linear(config.n_inner, config.n_embd, bias=config.feed_forward_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


class NormFeedForward(FeedForward):
    """A feed-forward with a norm of its own, in addition to its block's norm."""

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__(config, activation)
        self.norm = NORMS[config.norm](config.n_embd, config.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


NORMS = {"rmsnorm": RMSNorm, "layernorm": nn.LayerNorm, "unbiased_layernorm": UnbiasedLayerNorm}
EMBEDDINGS = {False: nn.Embedding, True: ScaledEmbedding}
POSITIONS: dict[str, type[Rotary | Sinusoidal | Learned]] = {
    "rotary": Rotary,
    "llama3_rotary": Llama3Rotary,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
}
FEED_FORWARDS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "swiglu": SwiGLU,
    "relu": partial(FeedForward, activation=F.relu),
    "gelu": partial(FeedForward, activation=F.gelu),
    "norm_relu": partial(NormFeedForward, activation=F.relu),
}
