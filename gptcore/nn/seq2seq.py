"""The encoder-decoder: source and target ids to logits (arXiv 1706.03762, figure 1).

    >>> from gptcore.config import PRESETS
    >>> model = Seq2Seq(PRESETS["translator"])
    >>> source, target = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[1, 2, 3]])
    >>> model(source, torch.ones(1, 4), target, torch.ones(1, 3)).shape
    torch.Size([1, 3, 4096])

It adds to the decoder of gptcore/nn/gpt.py an embedding and blocks for the source, whose mask
hides only padding, and cross-attention to their output in each block of the decoder.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gptcore.config import Seq2SeqConfig
from gptcore.nn.attention import Cache, causal_bias, padding_bias
from gptcore.nn.blocks import Block, CrossBlock
from gptcore.nn.gpt import build_last_norm
from gptcore.nn.init import INITS
from gptcore.nn.layers import EMBEDDINGS, POSITIONS


class Seq2Seq(nn.Module):
    """Generation calls `encode` once and `decode` per token; training calls `forward`."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.config = config
        self.n_group = config.n_head // config.n_kv_head
        embedding, position = EMBEDDINGS[config.embedding_scale], POSITIONS[config.position]
        self.source_embed = embedding(config.source_vocab_size, config.n_embd)
        self.source_position = position(config)
        self.encoder_blocks = nn.ModuleList(Block(config) for _ in range(config.n_encoder_layer))
        self.encoder_norm = build_last_norm(config)
        own_embed = embedding(config.vocab_size, config.n_embd)
        self.embed = self.source_embed if config.shared_embeddings else own_embed
        self.position = position(config)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.blocks = nn.ModuleList(CrossBlock(config) for _ in range(config.n_layer))
        self.norm = build_last_norm(config)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=config.head_bias)
        if config.tied_embeddings:
            self.head.weight = self.embed.weight
        INITS[config.init](self, config)

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> list[Cache]:
        """Read the source once and return its keys and values for each decoder layer.

        source_ids: (B, S); source_mask: (B, S), 1 for real tokens; padding is on the
        right -> (B, K, S, D) each per layer.
        """
        positions = torch.arange(source_ids.shape[1], device=source_ids.device)[None]
        x, rotation = self.source_position(self.source_embed(source_ids), positions)
        x, bias = self.dropout(x), padding_bias(source_mask)
        for block in self.encoder_blocks:
            x, _ = block(x, rotation, bias)
        memory = self.encoder_norm(x)  # (B, S, C)
        return [block.keys_values(memory) for block in self.blocks]  # type: ignore[operator]

    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        source_mask: Tensor,
        past_key_values: Sequence[Cache | None] | None,
        memory: list[Cache],
    ) -> tuple[Tensor, list[Cache]]:
        """Return the logits of the target token after each position, and the extended cache.

        input_ids, position_ids: (B, T); attention_mask: (B, P + T), where P is the number of
        cached positions; past_key_values: (B, K, P, D) each per layer; memory: what `encode`
        returned -> logits (B, T, V), cache (B, K, P + T, D) each per layer.
        """
        x, rotation = self.position(self.embed(input_ids), position_ids)
        x = self.dropout(x)  # (B, T, C)
        bias = causal_bias(attention_mask, input_ids.shape[1], self.n_group)
        memory_bias = padding_bias(source_mask)
        pasts: Sequence[Cache | None] = past_key_values or [None] * len(self.blocks)
        caches = []
        for block, past, keys_values in zip(self.blocks, pasts, memory):
            x, cache = block(x, rotation, bias, past, keys_values, memory_bias)
            caches.append(cache)
        return self.head(self.norm(x)), caches

    def forward(
        self, source_ids: Tensor, source_mask: Tensor, input_ids: Tensor, attention_mask: Tensor
    ) -> Tensor:
        """Return logits (B, T, V) of sources (B, S) and targets (B, T), both padded right."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        memory = self.encode(source_ids, source_mask)
        return self.decode(input_ids, attention_mask, positions, source_mask, None, memory)[0]
