"""ModelConfig: the shape of a model, frozen and validated, and the named presets.

    >>> PRESETS["nano"].head_dim
    32
    >>> ModelConfig.from_dict(PRESETS["nano"].to_dict()) == PRESETS["nano"]
    True

| here       | Vaswani et al. (arXiv 1706.03762) | Llama (arXiv 2302.13971, HF keys) |
|------------|-----------------------------------|-----------------------------------|
| n_layer    | N                                 | num_hidden_layers                 |
| n_embd     | d_model                           | hidden_size                       |
| n_head     | h                                 | num_attention_heads               |
| n_kv_head  | (h)                               | num_key_value_heads               |
| head_dim   | d_k = d_v                         | head_dim                          |
| n_inner    | d_ff                              | intermediate_size                 |
| block_size | (sequence length)                 | max_position_embeddings           |
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from gptcore.checks import UserError, build, check_choice, check_range, check_types

# One name per entry of the registries in gptcore/nn/layers.py (a test compares them).
NORMS = ("rmsnorm",)
POSITIONS = ("rotary",)
FEED_FORWARDS = ("swiglu",)


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a decoder. Raises UserError when a field makes no sense."""

    vocab_size: int = 2048  # tokens, the special ones included
    block_size: int = 512  # context: prompt plus new tokens never exceed it
    n_layer: int = 4
    n_head: int = 4
    n_kv_head: int = 2  # grouped heads (arXiv 2305.13245): n_head / n_kv_head queries share one
    n_embd: int = 128
    n_inner: int = 352  # width of the feed-forward; 8/3 n_embd for a gated one
    norm: str = "rmsnorm"
    norm_eps: float = 1e-5
    position: str = "rotary"
    rope_theta: float = 10000.0
    feed_forward: str = "swiglu"
    tied_embeddings: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_kv_head", "n_embd"):
            check_range(self, name, 1, 2**31)
        check_range(self, "n_inner", 1, 2**31)
        check_range(self, "norm_eps", 1e-12, 1.0)
        check_range(self, "rope_theta", 1.0, 1e12)
        check_range(self, "dropout", 0.0, 0.99)
        for name, whole_name in (("n_head", "n_embd"), ("n_kv_head", "n_head")):
            part, whole = getattr(self, name), getattr(self, whole_name)
            if whole % part:
                # an odd head size would be refused next, so it is not offered
                step = 2 if name == "n_head" else 1
                choices = [n for n in range(1, min(whole, 64) + 1) if whole % (n * step) == 0]
                raise UserError(
                    f"{name}={part} does not divide {whole_name}={whole}: choose one of {choices}"
                )
        if self.head_dim % 2:
            raise UserError(
                f"head_dim = n_embd / n_head = {self.head_dim} is odd, and rotary positions turn "
                f"pairs: change n_head={self.n_head} or n_embd={self.n_embd}"
            )
        for name, known in (
            ("norm", NORMS),
            ("position", POSITIONS),
            ("feed_forward", FEED_FORWARDS),
        ):
            check_choice(name, getattr(self, name), known)

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelConfig":
        """The inverse of to_dict; unknown keys are refused."""
        return build(cls, values)


PRESETS: dict[str, ModelConfig] = {
    # for tests: 0.1M parameters
    "tiny": ModelConfig(
        vocab_size=512, block_size=256, n_layer=2, n_head=4, n_kv_head=2, n_embd=64, n_inner=128
    ),
    # 1.0M: trains in minutes, ships as models/default
    "nano": ModelConfig(),
    # 12.6M: an hour or two on two cores
    "small": ModelConfig(
        vocab_size=8192, n_layer=6, n_head=6, n_kv_head=2, n_embd=384, n_inner=1024
    ),
    # 61M: for a GPU or a patient machine
    "base": ModelConfig(
        vocab_size=16384,
        block_size=1024,
        n_layer=11,
        n_head=10,
        n_kv_head=5,
        n_embd=640,
        n_inner=1728,
    ),
}
