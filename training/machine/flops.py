"""FLOPs of a training, by the shape of its model, and the share of a GPU's peak (MFU).

MFU is model FLOPs utilisation, as defined in PaLM (arXiv 2204.02311, appendix B).

>>> from gptcore.config import PRESETS
>>> flops_per_token(PRESETS["nano"])
9142272
>>> peak_flops("NVIDIA H100 80GB HBM3") / 1e12
989.0
"""

import re

from gptcore.config import ModelConfig

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


def flops_per_token(model: ModelConfig, row_tokens: int = 0, lora: int = 0) -> int:
    """Return the FLOPs of one token's forward and backward pass in a row: 6 N + 12 L H Q T.

    N is the number of parameters, L of layers, H of heads, Q their size, T row_tokens (0: the
    context). Beside adapters of rank `lora` the parameters are frozen and need no gradient: 4 N,
    and 6 for each of the adapters'. The head counts at every position, though a step computes it
    only where something is learned.
    """
    width = model.n_head * model.head_dim
    attention = 12 * model.n_layer * width * (row_tokens or model.block_size)
    if lora:
        adapters = lora * sum(rows + columns for rows, columns in matrices(model))
        return 4 * parameters(model) + 6 * adapters + attention
    return 6 * parameters(model) + attention


def parameters(model: ModelConfig) -> int:
    """Return the number of parameters in matrices; of embedding and head, one counts."""
    return sum(rows * columns for rows, columns in matrices(model)) + (
        model.vocab_size * model.n_embd
    )


def matrices(model: ModelConfig) -> list[tuple[int, int]]:
    """Return the shapes of the blocks' matrices, which Muon updates."""
    C, q, kv = model.n_embd, model.n_head * model.head_dim, model.n_kv_head * model.head_dim
    n_up = 2 if model.feed_forward == "swiglu" else 1  # it has a gate
    block = [(C, q), (C, kv), (C, kv), (q, C), *[(C, model.n_inner)] * n_up, (model.n_inner, C)]
    return block * model.n_layer


def update_flops(model: ModelConfig) -> float:
    """Return the FLOPs of Muon's update: three matrix products in each of four rounds.

    Two products are of the matrix (m, n) with (m, m), one of (m, m) with itself; m is the
    shorter side.
    """
    return sum(4 * (4 * max(m) * min(m) ** 2 + 2 * min(m) ** 3) for m in matrices(model))


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
