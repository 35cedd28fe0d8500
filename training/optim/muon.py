"""Muon: SGD with momentum whose updates are made orthogonal (Jordan et al. 2024).

torch.optim.Muon is the reference in the tests. This one also takes parameters that are split
between processes (FSDP), and computes in the precision of the run, so that an fp32 run depends
on the number of processes only by rounding.

>>> w = torch.nn.Parameter(torch.eye(2))
>>> optimizer = Muon([w], lr=0.1, weight_decay=0.0, momentum=0.95, dtype=torch.float32)
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from training.machine.parallel import split, whole

# Coefficients of the polynomial a x + b x^3 + c x^5. They raise small singular values fast: after
# five rounds all singular values lie between about 0.7 and 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """An optimizer for matrices; its updates have AdamW's RMS (arXiv 2502.16982, section 2.2)."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float,
        dtype: torch.dtype = torch.bfloat16,
    ):
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, defaults)
        self.dtype = dtype  # precision of the matrix products

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient, state = parameter.grad, self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                average = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
                direction = whole(gradient.lerp(average, group["momentum"]))  # Nesterov
                update = split(orthogonal(direction.to(self.dtype)).to(direction.dtype), parameter)
                size = 0.2 * math.sqrt(max(parameter.shape))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of the singular value decomposition: (m, n) -> (m, n).

    Newton-Schulz iterations compute it faster than the decomposition would.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x.T if is_tall else x
