"""Writes a GGUF file as a model folder in Hugging Face's format, which is then exported as such.

>>> to_hugging_face(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), Path("SmolLM2"))   # doctest: +SKIP

Tensors are unpacked to fp32; for a Llama's query and key matrices see export.gguf.rotary.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from export.formats.weights import write_weights
from export.gguf.file import GGUF, read_gguf
from export.gguf.rotary import FACTORS, frequency_factors, in_halves
from export.gguf.tokenizer import check_vocabulary, token_id, tokenizer_config, tokenizer_json
from gptcore.checks import UserError, brief
from gptcore.config import ModelConfig
from gptcore.families import CLASSES
from gptcore.system.files import write_json

LAYERS = {  # by llama.cpp's name of a layer of a block
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
BIASED = ("attn_q", "attn_k", "attn_v")  # layers that have a bias in Qwen 2 alone
SAMPLING = {"temperature": "temp", "repetition_penalty": "penalty_repeat"} | {
    name: name for name in ("top_k", "top_p", "min_p")
}
OTHERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# Settings that change what a model computes, unless they are one of these.
UNSUPPORTED: dict[str, tuple] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),  # llama.cpp scales by it where no type is named
    "rope.scaling.attn_factor": (1.0,),
    "rope.scale_linear": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "expert_count": (0,),
}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def to_hugging_face(path: Path, folder: Path) -> None:
    """Fill a new folder; raises UserError naming what is not supported."""
    file = read_gguf(path)
    if (n_parts := file.metadata.get("split.count", 0)) not in (0, 1):
        raise UserError(
            f"{path} is one of the {n_parts} parts of a model: make one file of them, with "
            f"llama.cpp's `llama-gguf-split --merge FIRST-PART WHOLE.gguf`"
        )
    family = file.metadata.get("general.architecture")
    if not isinstance(family, str) or family not in CLASSES:
        raise UserError(
            f"{path}: general.architecture={brief(family)} is not supported, only "
            f"{', '.join(CLASSES)} are"
        )
    config = config_json(file, family)
    names = hugging_face_names(file, family)
    check_vocabulary(file, config["vocab_size"])
    folder.mkdir()
    for name, content in (
        ("config.json", config),
        ("tokenizer.json", tokenizer_json(file)),
        ("tokenizer_config.json", tokenizer_config(file)),
        ("generation_config.json", generation_config(file)),
    ):
        write_json(folder / name, content)
    licence = file.metadata.get("general.license")
    if isinstance(licence, str) and re.fullmatch(r"[\w.-]+", licence):
        (folder / "README.md").write_text(f"---\nlicense: {licence}\n---\n", encoding="utf-8")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    write_weights(tensors(file, names, heads if family == "llama" else {}), folder)


def config_json(file: GGUF, family: str) -> dict[str, Any]:
    def value(key: str, kind: type, default: Any = None) -> Any:
        found = file.metadata.get(f"{family}.{key}", default)
        is_above = isinstance(found, int | float) and found > 0
        if type(found) is not kind or not is_above:
            told, wanted = brief(found), "whole number" if kind is int else "float"
            raise UserError(f"{file.path}: {family}.{key}={told} is not a {wanted} above 0")
        return found

    if "token_embd.weight" not in file.places:
        raise UserError(f"{file.path} has no token_embd.weight: it is not a whole model")
    width, n_head = value("embedding_length", int), value("attention.head_count", int)
    head_dim = value("attention.key_length", int, width // n_head)
    for key in ("rope.dimension_count", "attention.value_length"):
        if (found := value(key, int, head_dim)) != head_dim:
            raise UserError(
                f"{file.path}: {family}.{key}={found} is not supported, only whole heads of "
                f"{head_dim}"
            )
    config = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "vocab_size": file.places["token_embd.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": value("feed_forward_length", int),
        "num_hidden_layers": value("block_count", int),
        "num_attention_heads": n_head,
        "num_key_value_heads": value("attention.head_count_kv", int, n_head),
        "head_dim": head_dim,
        "max_position_embeddings": value("context_length", int),
        "hidden_act": "silu",
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon", float),
        "tie_word_embeddings": "output.weight" not in file.places,
        **token_ids(file),
    }
    for name, neutral in UNSUPPORTED.items():
        found = file.metadata.get(key := f"{family}.{name}", neutral[0])
        if found not in neutral:
            raise UserError(
                f"{file.path}: {key}={brief(found)} is not supported, only "
                f"{' or '.join(map(repr, neutral))} is"
            )
    rope = {"rope_type": "default", "rope_theta": value("rope.freq_base", float, 10000.0)}
    if FACTORS in file.places:
        rope |= llama3_rope(file, rope["rope_theta"], head_dim)
    return config | {"rope_parameters": rope}


def llama3_rope(file: GGUF, theta: float, head_dim: int) -> dict[str, Any]:
    """Return Llama 3's settings, of which the file has only the frequencies' factors."""
    found = file.tensor(FACTORS)
    factor = float(found.max())
    if np.isfinite(factor) and 1 < factor < 1e6:
        config = ModelConfig(
            head_size=head_dim,
            position="llama3_rotary",
            rope_theta=theta,
            rope_factor=factor,
        )
        expected = frequency_factors(config)
        if expected.shape == found.shape and np.allclose(expected, found, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **LLAMA3}
    raise UserError(f"{file.path}: the factors {FACTORS} are not Llama 3's: not supported")


def generation_config(file: GGUF) -> dict[str, Any]:
    """Return generation_config.json: the ids, and what the file recommends to sample with."""
    given = {key: file.metadata.get(f"general.sampling.{name}") for key, name in SAMPLING.items()}
    found = {key: value for key, value in given.items() if value is not None}
    for key, value in found.items():
        if type(value) not in (int, float):
            told = brief(value)
            raise UserError(f"{file.path}: general.sampling.{SAMPLING[key]}={told} is no number")
    return token_ids(file) | (found | {"do_sample": True} if found else {})


def token_ids(file: GGUF) -> dict[str, Any]:
    """Return the ids of the tokens that begin, end and fill up a text, as far as they are named."""
    n = file.places["token_embd.weight"].shape[0]
    ids = {name: token_id(file, name, n) for name in ("bos", "eos", "eot", "padding")}
    ends = [i for i in dict.fromkeys((ids["eos"], ids["eot"])) if i is not None]
    eos = ends if len(ends) > 1 else ids["eos"]
    found = {"bos_token_id": ids["bos"], "eos_token_id": eos, "pad_token_id": ids["padding"]}
    return {key: value for key, value in found.items() if value is not None}


def hugging_face_names(file: GGUF, family: str) -> dict[str, str]:
    """Return Hugging Face's names of the tensors by llama.cpp's."""
    names, biased = {}, BIASED if family == "qwen2" else ()
    for name in file.places:
        match name.split("."):
            case ["blk", layer, kind, "weight"] if kind in LAYERS:
                names[name] = f"model.layers.{layer}.{LAYERS[kind]}.weight"
            case ["blk", layer, kind, "bias"] if kind in biased:
                names[name] = f"model.layers.{layer}.{LAYERS[kind]}.bias"
            case [kind, "weight"] if kind in OTHERS:
                names[name] = f"{OTHERS[kind]}.weight"
            case _ if name != FACTORS:
                raise UserError(f"{file.path} has a tensor {brief(name)}, which is not supported")
    return names


def tensors(
    file: GGUF, names: dict[str, str], heads: dict[str, int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors, one in memory at a time; the rows of those in `heads` are put in order."""
    for name, theirs in names.items():
        array = file.tensor(name)
        n_head = heads.get(name.split(".")[-2])
        try:
            array = in_halves(array, n_head) if n_head else array
        except UserError as error:
            raise UserError(f"{file.path} is damaged: {name}: {error}") from None
        yield theirs, torch.from_numpy(array)
