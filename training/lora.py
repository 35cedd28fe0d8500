"""LoRA (arXiv 2106.09685): matrices that stay as they are, each with a small product beside it.

    >>> from gptcore.config import PRESETS
    >>> from gptcore.nn import build_model
    >>> model = build_model(PRESETS["tiny"])
    >>> add_adapters(model, rank=4)
    >>> sorted(name for name, p in model.named_parameters() if p.requires_grad)[:2]
    ['blocks.0.attention.out.lora_a', 'blocks.0.attention.out.lora_b']

A packed matrix has one A and one B. Its parts are rows of B, so PEFT's modules q, k and v (or gate
and up) each get their rows of B, and all of them the same A: the products are equal.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.config import ModelConfig
from gptcore.nn.llama import ONE_TO_ONE, PACKED, parts_of

# alpha / r of the paper (section 4.1), which says that tuning it is tuning the learning rate.
SCALE = 2.0


class LoRALinear(nn.Module):
    """x W^T + b + SCALE * (x A^T) B^T, of which A and B alone are trained: (..., in) -> (..., out).

    B begins as zero, so that a fresh adapter changes nothing.
    """

    def __init__(self, linear: nn.Linear, rank: int, dtype: torch.dtype):
        """`dtype`: that of the frozen matrix; bfloat16 halves its memory under autocast."""
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().to(dtype), requires_grad=False)
        self.bias = linear.bias
        self.lora_a = nn.Parameter(torch.empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # as nn.Linear draws a matrix

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(x, self.lora_a) * SCALE  # (..., rank)
        return F.linear(x, self.weight, self.bias) + F.linear(low, self.lora_b)


def add_adapters(model: nn.Module, rank: int, dtype: torch.dtype = torch.float32) -> None:
    """Freeze a decoder, and give each matrix of its blocks an adapter, drawn by torch's generator.

    `dtype`: that of the frozen matrices.
    """
    model.requires_grad_(False)
    for parent in list(model.blocks.modules()):  # type: ignore[union-attr, operator]
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(parent, name, LoRALinear(layer, rank, dtype))


def merged(base: dict[str, Tensor], adapters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the plain model that computes the same: W + SCALE * B A."""
    result = dict(base)
    for name, a in adapters.items():
        stem, _, kind = name.rpartition(".")
        if kind == "lora_a":
            product = adapters[f"{stem}.lora_b"].float() @ a.float()
            result[f"{stem}.weight"] = base[f"{stem}.weight"] + SCALE * product
    return result


def to_peft(adapters: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return adapters of a Llama under the names of PEFT's adapter_model.safetensors."""
    result = {}
    for layer in range(config.n_layer):
        for name, modules in (PACKED | {n: (m,) for n, m in ONE_TO_ONE.items()}).items():
            a, b = (adapters.get(f"blocks.{layer}.{name}.lora_{kind}") for kind in "ab")
            if a is None or b is None:
                continue  # a norm
            for module, part in zip(modules, parts_of(b, name, config)):
                theirs = f"base_model.model.model.layers.{layer}.{module}"
                result[f"{theirs}.lora_A.weight"] = a.clone()
                result[f"{theirs}.lora_B.weight"] = part.clone()
    return result


def peft_config(rank: int, base: str) -> dict[str, Any]:
    """Return PEFT's adapter_config.json; `base` is the folder of the model that it adapts."""
    modules = [module for names in PACKED.values() for module in names]
    modules += [module for module in ONE_TO_ONE.values() if module.endswith("_proj")]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": SCALE * rank,
        "lora_dropout": 0.0,
        "target_modules": sorted(module.rpartition(".")[2] for module in modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
