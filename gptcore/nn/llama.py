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

from collections.abc import Iterator, Mapping

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


def to_llama(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert a state dict of gptcore.nn.gpt.GPT to one of LlamaForCausalLM."""
    return {
        theirs: part
        for ours, llama_names in names(config)
        for theirs, part in zip(llama_names, parts_of(state[ours], ours, config))
    }


def from_llama(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert a state dict of LlamaForCausalLM to one of gptcore.nn.gpt.GPT."""
    result = {}
    for ours, llama_names in names(config):
        first, *rest = (state[theirs] for theirs in llama_names)
        result[ours] = torch.cat([first, *rest]) if rest else first  # no copy of a large one
    return result


def names(config: ModelConfig) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each parameter, and Llama's names of its parts."""
    yield "embed.weight", ["model.embed_tokens.weight"]
    single = ONE_TO_ONE | (QK_NORM if config.qk_norm else {})
    layers = {ours: (theirs,) for ours, theirs in single.items()} | PACKED
    biased = ["attention.qkv"] if config.qkv_bias else []
    for i in range(config.n_layer):
        kinds = [(name, "weight") for name in layers] + [(name, "bias") for name in biased]
        for name, kind in kinds:
            theirs = [f"model.layers.{i}.{part}.{kind}" for part in layers[name]]
            yield f"blocks.{i}.{name}.{kind}", theirs
    yield "norm.weight", ["model.norm.weight"]
    if not config.tied_embeddings:
        yield "head.weight", ["lm_head.weight"]


def parts_of(rows: Tensor, name: str, config: ModelConfig) -> tuple[Tensor, ...]:
    """Split the rows of a packed layer into its parts; those of another layer stay whole."""
    if "attention.qkv" in name:
        heads = (config.n_head, config.n_kv_head, config.n_kv_head)
        return rows.split([n * config.head_dim for n in heads])
    if "feed_forward.gate_up" in name:
        return rows.split(config.n_inner)
    return (rows,)
