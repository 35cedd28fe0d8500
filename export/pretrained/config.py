"""Reads a Hugging Face config.json as a ModelConfig; refuses whatever our Llama would not compute.

>>> read_config(settings, Path("SmolLM2-135M/config.json"), None).n_layer    # doctest: +SKIP
30
"""

import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gptcore.checks import UserError, brief, check_type, shorten
from gptcore.config import ModelConfig
from gptcore.families import CLASSES, FAMILIES
from gptcore.typed_json import read_as

FULL, WINDOW = "full_attention", "sliding_attention"  # kinds of layers
PARTIAL = "partial_rotary_factor"  # how much of each head is turned
CAUSAL = "AutoModelForCausalLM"  # what a program of the model's makers may stand for
BIASES = ("attention_bias", "mlp_bias")
SUPPORTED = {  # keys of config.json, and the values that gptcore's Llama supports
    "model_type": tuple(FAMILIES),
    "hidden_act": ("silu",),
    **dict.fromkeys(BIASES, (False, None)),
    "is_causal": (True, None),
    PARTIAL: (1.0, None),
    "quantization_config": (None,),
}

# What a family's class of transformers takes for a key that config.json leaves out.
DEFAULTS = {"qwen3": {"head_dim": 128}}

KEYS = {  # of config.json, by the names of our fields
    "block_size": "max_position_embeddings",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_kv_head": "num_key_value_heads",
    "head_size": "head_dim",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "rope_factor": "factor",
    "rope_slow": "low_freq_factor",
    "rope_fast": "high_freq_factor",
    "rope_context": "original_max_position_embeddings",
}
OUR_NAME = re.compile(rf"\b(?:{'|'.join(KEYS)})\b")


@dataclass(frozen=True)
class LlamaShape:
    """The keys of a Llama's config.json that define its shape."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    rms_norm_eps: float
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False


def read_config(settings: dict[str, Any], path: Path, context: int | None) -> ModelConfig:
    """Convert config.json to a ModelConfig; raises UserError naming an unsupported key."""
    for key, known in SUPPORTED.items():
        value = settings.get(key, known[0])
        if value not in known:
            told = brief(value)
            raise UserError(
                f"{path}: {key}={told} is not supported, only {' or '.join(map(repr, known))} is"
            )
    name = settings.get("model_type", "llama")
    check_program(settings, name, path)
    given = DEFAULTS.get(name, {}) | settings
    names = {field.name for field in fields(LlamaShape)}
    shape = read_as(LlamaShape, {k: v for k, v in given.items() if k in names}, str(path))
    longest = shape.max_position_embeddings
    if context is not None and not (2 <= context <= longest):
        raise UserError(
            f"--context {context} is out of range: choose 2 to {longest}, which is "
            f"max_position_embeddings of {path}"
        )
    check_attention(settings, context or longest, path)
    n_head = shape.num_attention_heads
    is_usual = shape.head_dim is None or shape.head_dim * n_head == shape.hidden_size
    family: dict[str, Any] = FAMILIES[name]
    try:
        config = ModelConfig(
            vocab_size=shape.vocab_size,
            block_size=context or longest,
            n_layer=shape.num_hidden_layers,
            n_head=n_head,
            n_kv_head=shape.num_key_value_heads or n_head,
            n_embd=shape.hidden_size,
            n_inner=shape.intermediate_size,
            norm_eps=shape.rms_norm_eps,
            head_size=0 if is_usual else shape.head_dim,
            tied_embeddings=shape.tie_word_embeddings,
            **family,
            **read_rope(settings),
        )
    except UserError as error:
        said = OUR_NAME.sub(lambda found: KEYS[found[0]], str(error))
        raise UserError(f"{path}: {said}") from None
    return config


def check_attention(settings: dict[str, Any], size: int, path: Path) -> None:
    """Raise UserError if a layer's attention is limited to fewer than the last `size` tokens.

    `size`: the model's context, in tokens; a window of at least that many changes nothing.
    """
    kinds = settings.get("layer_types") or []
    if not (isinstance(kinds, list) and all(kind in (FULL, WINDOW) for kind in kinds)):
        told = brief(kinds)
        raise UserError(f"{path}: layer_types={told} is not supported, only {FULL} is")
    uses, window = settings.get("use_sliding_window"), settings.get("sliding_window")
    most = window if type(window) is int and window >= 2 else 0
    if (uses or WINDOW in kinds) and most < size:
        remedy = f"choose --context {most} or less" if most else "name another model"
        raise UserError(
            f"{path}: use_sliding_window={uses!r} with sliding_window={brief(window)} is "
            f"not supported for a context of {size} tokens: {remedy}"
        )


def check_program(settings: dict[str, Any], name: str, path: Path) -> None:
    """Raise UserError if a model comes with a program, whose numbers may be other ones."""
    programs = settings.get("auto_map")
    if isinstance(programs, dict) and CAUSAL in programs:
        raise UserError(
            f"{path}: auto_map={brief(programs)} names a program for {CAUSAL}, which is "
            f"not run: if it computes what {CLASSES[name]} does, delete auto_map there"
        )


def read_rope(settings: dict[str, Any]) -> dict[str, Any]:
    """Read the rotary positions: `rope_parameters` of today, or the older `rope_scaling`.

    Where both are given, transformers takes the older one, with today's theta.
    """
    numbers = {"rope_theta": settings.get("rope_theta", 10000.0)}
    rope: dict[str, Any] = {}
    for key in ("rope_parameters", "rope_scaling"):
        if given := settings.get(key):
            check_type(key, given, dict)
            check_rope(key, given)
            numbers, rope = numbers | given, given

    def number(key: str) -> float:
        check_type(key, numbers.get(key), float)
        if not (abs(numbers[key]) <= sys.float_info.max):  # JSON may have a longer whole number
            raise UserError(f"{key}={brief(numbers[key])} is not finite")
        return float(numbers[key])

    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = number("rope_theta")
    if kind == "default":
        return {"position": "rotary", "rope_theta": theta}
    if kind != "llama3":
        told = brief(kind)
        raise UserError(f"rope_type={told} is not supported, only default and llama3")
    return {
        "position": "llama3_rotary",
        "rope_theta": theta,
        "rope_factor": number("factor"),
        "rope_slow": number("low_freq_factor"),
        "rope_fast": number("high_freq_factor"),
        "rope_context": round(number("original_max_position_embeddings")),
    }


def check_rope(key: str, given: dict[str, Any]) -> None:
    """Raise UserError if positions turn parts of heads, or differ between layers."""
    if inner := next((name for name, value in given.items() if isinstance(value, dict)), None):
        raise UserError(f"{key}: {shorten(inner)} has settings of its own, which is not supported")
    if (share := given.get(PARTIAL, 1.0)) not in (1.0, None):
        raise UserError(f"{key}: {PARTIAL}={brief(share)} is not supported, only 1.0 is")
