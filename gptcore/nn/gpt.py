"""The decoder: token ids to logits.

    >>> from gptcore.config import PRESETS
    >>> model = GPT(PRESETS["tiny"])
    >>> logits, caches = model(**whole_sequence(torch.tensor([[1, 2, 3]])))
    >>> logits.shape
    torch.Size([1, 3, 512])

Positions, mask and cache are explicit arguments, as in the exported ONNX graph. Training, the
PyTorch session and the export therefore all run this one `forward`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.attention import Cache, causal_bias
from gptcore.nn.blocks import Block
from gptcore.nn.init import INITS
from gptcore.nn.layers import EMBEDDINGS, NORMS, POSITIONS


class GPT(nn.Module):
    """A causal language model; by default of Llama's shape (arXiv 2302.13971, section 2.2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.n_group = config.n_head // config.n_kv_head
        self.embed = EMBEDDINGS[config.embedding_scale](config.vocab_size, config.n_embd)
        self.position = POSITIONS[config.position](config)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = build_last_norm(config)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=config.head_bias)
        if config.tied_embeddings:
            self.head.weight = self.embed.weight
        INITS[config.init](self, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key_values: Sequence[Cache | None] | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Return the logits of the token after each position, and the extended cache.

        input_ids, position_ids: (B, T); attention_mask: (B, S), 1 for real tokens, where S is
        the number of cached positions plus T; past_key_values: keys and values (B, K, S - T, D)
        per layer -> logits (B, T, V), keys and values (B, K, S, D) per layer.
        """
        x, rotation = self.position(self.embed(input_ids), position_ids)
        x = self.dropout(x)  # (B, T, C)
        bias = causal_bias(attention_mask, input_ids.shape[1], self.n_group)
        pasts: Sequence[Cache | None] = past_key_values or [None] * len(self.blocks)
        caches = []
        for block, past in zip(self.blocks, pasts):
            x, cache = block(x, rotation, bias, past)
            caches.append(cache)
        return self.head(self.norm(x)), caches


def build_last_norm(config: ModelConfig) -> nn.Module:
    return NORMS[config.norm](config.n_embd, config.norm_eps) if config.last_norm else nn.Identity()


def whole_sequence(input_ids: Tensor) -> dict[str, Tensor]:
    """Return the arguments of `forward` for sequences (B, T) without padding or cache."""
    T = input_ids.shape[1]
    position_ids = torch.arange(T, device=input_ids.device)[None]
    # One row of mask and positions is broadcast over the whole batch.
    return {
        "input_ids": input_ids,
        "attention_mask": torch.ones_like(position_ids),
        "position_ids": position_ids,
    }
