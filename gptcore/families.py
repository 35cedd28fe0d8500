"""The families of decoders that other libraries know, and which of them can hold a shape.

>>> from gptcore.config import PRESETS
>>> family(PRESETS["nano"]), family(PRESETS["wayland"])
('llama', None)
"""

from gptcore.config import ModelConfig

# The settings that all these families have in common, and those of each, by its model_type.
LLAMA = {
    "norm": "rmsnorm",
    "shared_norm": False,
    "last_norm": True,
    "residual": "pre",
    "feed_forward": "swiglu",
    "out_bias": False,
    "feed_forward_bias": False,
    "head_bias": False,
    "embedding_scale": False,
}
FAMILIES: dict[str, dict[str, bool]] = {
    "llama": {"qkv_bias": False, "qk_norm": False},
    "qwen2": {"qkv_bias": True, "qk_norm": False},  # arXiv 2407.10671, section 2.2.1
    "qwen3": {"qkv_bias": False, "qk_norm": True},  # arXiv 2505.09388, section 2
}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def family(config: ModelConfig) -> str | None:
    """Return the model_type of the class of transformers that holds such a model, or None."""
    is_rotary = config.position in ("rotary", "llama3_rotary")
    if not (is_rotary and type(config) is ModelConfig):
        return None
    for name, own in FAMILIES.items():
        if all(getattr(config, key) == value for key, value in (LLAMA | own).items()):
            return name
    return None
