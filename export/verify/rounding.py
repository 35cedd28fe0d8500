"""Measures how far fp32 rounds a model: PyTorch's results in fp32 against those in float64.

Two correct programs differ by their rounding, which a test must allow for; how much that is depends
on the weights. The real SmolLM2, whose residual stream has a few very large values (arXiv
2402.17762), is 3.9e-4 from float64 in the worst case. FlashAttention's own tests also
derive what is allowed from the difference from float64.

>>> limit_of(5e-6), limit_of(1e-4)
(0.0001, 0.0004)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.verify.report import TOLERANCE
from gptcore.nn.gpt import GPT

AT_ONCE = 2e9  # most bytes of a model that is widened as a whole
HEAD_ROWS = 8192  # words of the vocabulary whose weights are widened together
ROUNDINGS = 4  # each side has its own, and one's worst case is not the other's


def limit_of(rounding: float) -> float:
    """Return the largest difference that is allowed where PyTorch itself rounds by `rounding`."""
    return max(TOLERANCE, ROUNDINGS * rounding)


@contextmanager
def in_float64(model: GPT) -> Iterator[None]:
    """Let a model in fp32 compute in float64.

    A small model's weights are widened once. A large model's would not fit the memory: each part
    is widened only while it runs, which takes longer than a short run itself.
    """

    def widen(part: nn.Module, inputs: tuple[Any, ...]) -> Any:
        part.double()
        return map_floats(inputs, torch.float64)

    parts, head = [model.position, *model.blocks, model.norm], model.head
    hooks = [model.embed.register_forward_hook(lambda part, ids, found: found.double())]
    if 8 * sum(p.numel() for p in model.parameters()) <= AT_ONCE:
        parts.append(head)
    else:
        hooks += [
            part.register_forward_hook(lambda part, *_: part.float() and None) for part in parts
        ]
        model.add_module("head", WideHead(head))
    hooks += [part.register_forward_pre_hook(widen) for part in parts]
    try:
        yield
    finally:
        model.head = head
        model.float()  # exact: each value was one of fp32
        for hook in hooks:
            hook.remove()


class WideHead(nn.Module):
    """A head in float64 that widens a part of its weights at a time: all may take gigabytes."""

    def __init__(self, head: nn.Linear):
        super().__init__()
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        rows = self.head.weight.split(HEAD_ROWS)
        logits = torch.cat([F.linear(x, some.double()) for some in rows], -1)
        return logits if self.head.bias is None else logits + self.head.bias.double()


def map_floats(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point tensors in nested tuples and lists."""
    if isinstance(value, tuple | list):
        return type(value)(map_floats(item, dtype) for item in value)
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_float else value
