"""Memory of a step: what the backward pass needs, what is free, and blocks that are computed twice.

>>> from gptcore.config import PRESETS
>>> round(kept_bytes(PRESETS["nano"], n_rows=32, n_tokens=512, size=2, is_fused=False) / 1e9, 2)
0.75
"""

import math
import os
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.nn.blocks import Block, CrossBlock
from training.machine.devices import only_in_training

SHARE = 0.5  # of the memory that weights, gradients and moments leave: for a step's activations


def kept_bytes(config: ModelConfig, n_rows: int, n_tokens: int, size: int, is_fused: bool) -> int:
    """Return about how many bytes a forward pass keeps for the backward pass.

    `n_tokens`: tokens of a row. `size`: bytes per number. A token keeps 14 C + 4 n_inner numbers
    in each layer, and half a row of attention weights for each head, as its second half is hidden
    (measured, see tests/training/test_lora.py); attention that `is_fused` keeps no weights. Half
    of the tokens have logits, which are kept as numbers, in fp32, and as their gradient.
    """
    weights = 0 if is_fused else config.n_head * n_tokens // 2
    layer = 14 * config.n_embd + 4 * config.n_inner + weights
    n_layers = config.n_layer
    if isinstance(config, Seq2SeqConfig):
        n_layers += config.n_encoder_layer
    return n_rows * n_tokens * (n_layers * layer * size + 6 * config.vocab_size)


def free_memory(device: torch.device) -> float:
    """Return the bytes that are free on a device, or in the container that this process is in."""
    if device.type == "cuda":  # what PyTorch keeps for its next tensors is free, too
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":") for line in file)
        return min(int(found["MemAvailable"].split()[0]) * 1024, container_memory())
    except (OSError, KeyError, ValueError):  # not Linux: half of all
        names = getattr(os, "sysconf_names", {})
        if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
            return 4 << 30
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def container_memory() -> float:
    """Return the bytes that a container's limit leaves free (Linux, cgroup v2), or infinity."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((folder / f"memory.{kind}").read_text()) for kind in ("max", "current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(stat["inactive_file"])  # which the system gives up at need
    except (OSError, ValueError, KeyError):  # no such file, or no limit ("max")
        return math.inf


def room(device: torch.device, held: int) -> float:
    """Return how many bytes a step may keep on a device that is to hold `held` others, too."""
    return SHARE * (free_memory(device) - held)


def recompute_blocks(model: nn.Module) -> None:
    """Make each block keep its input alone in training, and compute the rest again in the backward
    pass (gradient checkpointing, arXiv 1604.06174): the same numbers, for a third more time."""
    for block in model.modules():
        if isinstance(block, Block | CrossBlock):  # a translator's encoder has some, too
            only_in_training(block, partial(checkpoint, block.forward, use_reentrant=False))
