"""The loss of a training step.

>>> logits, targets = torch.zeros(2, 4), torch.tensor([1, IGNORED])
>>> round(summed_loss(logits, targets).item(), 4)                    # ln 4
1.3863
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from training.data.rows import IGNORED

Loss = Callable[[Tensor, Tensor, float], Tensor]


def summed_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross entropy (nats) of logits (N, V); targets (N,) may be IGNORED."""
    return F.cross_entropy(
        logits, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )


def build_loss(is_compiled: bool) -> Loss:
    """Return summed_loss, or a compiled form, which never writes the logits in float32.

    The number of rows changes with each batch, and must not be compiled anew.
    """
    return torch.compile(summed_loss, dynamic=True) if is_compiled else summed_loss
