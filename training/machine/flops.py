"""Model FLOPs utilisation (MFU), as defined in PaLM (arXiv 2204.02311, appendix B).

>>> from gptcore.config import PRESETS
>>> from gptcore.nn import build_model
>>> flops_per_token(build_model(PRESETS["nano"]), row_tokens=512)
9149184
>>> peak_flops("NVIDIA H100 80GB HBM3") / 1e12
989.0
"""

import re

import torch
from torch import nn

from gptcore.nn.gpt import GPT

# Peak TFLOPS of dense bfloat16 with fp32 accumulation, from the makers' data sheets.
PEAKS = {
    "B200": 2250,
    "H200": 989,
    "H200 NVL": 835,
    "H100": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "A100": 312,
    "A40": 150,
    "A30": 165,
    "A10": 125,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX A6000": 155,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
# Words in a name that mark another card than the one in PEAKS.
VARIANTS = re.compile(r"\b(Laptop|Mobile|MIG|Ti|SUPER|D)\b")


def flops_per_token(model: GPT, row_tokens: int) -> int:
    """Return the FLOPs of one token's forward and backward pass in a row: 6 N + 4 M + 12 L H Q T.

    N is the number of parameters that are trained, M of those that are frozen, which need no
    gradient, without tables that are only looked up; a tied embedding is also the output head, so
    it counts. L: layers, H: heads, Q: their size, T: row_tokens. The head counts at every position,
    though a step computes it only where something is learned.
    """
    config = model.config
    looked_up = [] if config.tied_embeddings else [model.embed.weight]
    if config.position == "learned":
        looked_up.append(model.position.table)
    left_out = {id(table) for table in looked_up}
    multiplied = (p for p in model.parameters() if id(p) not in left_out)
    weights = sum((6 if p.requires_grad else 4) * p.numel() for p in multiplied)
    return weights + 12 * config.n_layer * config.n_head * config.head_dim * row_tokens


def peak_flops(device_name: str) -> float | None:
    """Return a card's peak FLOPs per second by its CUDA name, or None if PEAKS lacks it."""
    if VARIANTS.search(device_name):
        return None
    known = [card for card in PEAKS if re.search(rf"\b{card}\b", device_name)]
    return PEAKS[max(known, key=len)] * 1e12 if known else None


def utilisation(flops_per_s: float, device_name: str) -> float | None:
    """Return the MFU, a share of the card's peak from 0 to 1, or None if the peak is unknown."""
    peak = peak_flops(device_name)
    return flops_per_s / peak if peak else None


def gpu_figures(
    model: nn.Module, row_tokens: int, tokens_per_s: float, device: torch.device
) -> dict[str, float]:
    """Return a GPU's figures for a log line: peak memory in bytes, and the MFU of a decoder.

    The result is empty on a CPU.
    """
    if device.type != "cuda":
        return {}
    figures: dict[str, float] = {"peak_memory": torch.cuda.max_memory_allocated(device)}
    if isinstance(model, GPT):
        flops_per_s = flops_per_token(model, row_tokens) * tokens_per_s
        share = utilisation(flops_per_s, torch.cuda.get_device_name(device))
        figures |= {} if share is None else {"mfu": round(share, 4)}
    return figures
