"""Conversion between our parameter names and those of Hugging Face's LlamaForCausalLM.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn import build_model
    >>> model = build_model(PRESETS["tiny"])
    >>> state = to_llama(model.state_dict(), model.config)
    >>> same = from_llama(state, model.config)
    >>> all(torch.equal(same[k], t) for k, t in model.state_dict().items() if k in same)
    True

The values stay bit-identical: our packed matrices are Llama's matrices stacked by rows.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from gptcore.config import ModelConfig

ONE_TO_ONE = {
    "attention_norm": "input_layernorm",
    "attention.out": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.down": "mlp.down_proj",
}
QK_NORM = {
    "attention.qk_norm.q": "self_attn.q_norm",
    "attention.qk_norm.k": "self_attn.k_norm",
}
PACKED = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "feed_forward.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
}


def one_to_one(config: ModelConfig) -> dict[str, str]:
    """Return Llama's name for each layer of a block that is one layer there too."""
    return ONE_TO_ONE | (QK_NORM if config.qk_norm else {})


def packed(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Return Llama's names for each parameter that is several there."""
    names = {
        f"{ours}.weight": tuple(f"{t}.weight" for t in theirs) for ours, theirs in PACKED.items()
    }
    qkv = tuple(f"{name}.bias" for name in PACKED["attention.qkv"])
    return names | ({"attention.qkv.bias": qkv} if config.qkv_bias else {})


def to_llama(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert a state dict of gptcore.nn.gpt.GPT to one of LlamaForCausalLM."""
    result = {"model.embed_tokens.weight": state["embed.weight"]}
    for layer in range(config.n_layer):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        for name, llama_name in one_to_one(config).items():
            result[f"{theirs}{llama_name}.weight"] = state[f"{ours}{name}.weight"]
        for name, llama_names in packed(config).items():
            parts = state[f"{ours}{name}"].split(part_sizes(name, config))
            for llama_name, part in zip(llama_names, parts):
                result[f"{theirs}{llama_name}"] = part
    result["model.norm.weight"] = state["norm.weight"]
    if not config.tied_embeddings:
        result["lm_head.weight"] = state["head.weight"]
    return result


def from_llama(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert a state dict of LlamaForCausalLM to one of gptcore.nn.gpt.GPT."""
    result = {"embed.weight": state["model.embed_tokens.weight"]}
    for layer in range(config.n_layer):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        for name, llama_name in one_to_one(config).items():
            result[f"{ours}{name}.weight"] = state[f"{theirs}{llama_name}.weight"]
        for name, llama_names in packed(config).items():
            parts = [state[f"{theirs}{llama_name}"] for llama_name in llama_names]
            result[f"{ours}{name}"] = torch.cat(parts)
    result["norm.weight"] = state["model.norm.weight"]
    if not config.tied_embeddings:
        result["head.weight"] = state["lm_head.weight"]
    return result


def part_sizes(name: str, config: ModelConfig) -> list[int]:
    """Return the number of rows of each part of a packed matrix."""
    if name.startswith("attention.qkv"):
        heads = [config.n_head, config.n_kv_head, config.n_kv_head]
        return [n * config.head_dim for n in heads]
    return [config.n_inner, config.n_inner]
