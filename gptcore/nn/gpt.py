"""The decoder: token ids to logits.

    >>> from gptcore.config import PRESETS
    >>> model = GPT(PRESETS["tiny"])
    >>> logits, caches = model(**whole_sequence(torch.tensor([[1, 2, 3]])))
    >>> logits.shape
    torch.Size([1, 3, 512])

Positions, mask and cache are explicit arguments, the same ones that the exported ONNX graph
has, so training, the reference session and the export all run this one `forward`.
"""

import torch
from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.nn.blocks import Block
from gptcore.nn.layers import NORMS, POSITIONS, Cache, attention_bias


class GPT(nn.Module):
    """A causal language model of the Llama shape (arXiv 2302.13971, section 2.2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.n_group = config.n_head // config.n_kv_head
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.position = POSITIONS[config.position](config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = NORMS[config.norm](config.n_embd, config.norm_eps)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied_embeddings:
            self.head.weight = self.embed.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal(0, 0.02), the residual outputs smaller by sqrt(2 n_layer) (GPT-2, 2.3)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_residual = name.endswith(("attention.out.weight", "down.weight"))
                depth = (2 * self.config.n_layer) ** -0.5 if is_residual else 1.0
                nn.init.normal_(parameter, std=0.02 * depth)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key_values: list[Cache] | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Logits of the token after each position, and the extended cache.

        input_ids, position_ids: (B, T); attention_mask: (B, S), 1 for real tokens, S being
        the cached positions plus T; past_key_values: per layer keys and values
        (B, K, S - T, D) -> (B, T, V), per layer keys and values (B, K, S, D).
        """
        x = self.embed(input_ids)  # (B, T, C)
        rotation = self.position(position_ids)
        bias = attention_bias(attention_mask, input_ids.shape[1], self.n_group)
        caches = []
        for block, past in zip(self.blocks, past_key_values or [None] * len(self.blocks)):
            x, cache = block(x, rotation, bias, past)
            caches.append(cache)
        return self.head(self.norm(x)), caches


def whole_sequence(input_ids: Tensor) -> dict[str, Tensor]:
    """The arguments of `forward` for sequences (B, T) without padding or cache."""
    T = input_ids.shape[1]
    position_ids = torch.arange(T, device=input_ids.device)[None]
    # One row of mask and positions serves the whole batch.
    return {
        "input_ids": input_ids,
        "attention_mask": torch.ones_like(position_ids),
        "position_ids": position_ids,
    }
