"""Muon: SGD with momentum whose updates are made orthogonal (Jordan et al. 2024).

torch.optim.Muon is the reference in the tests. This one also takes parameters that are split
between processes (FSDP), and computes in the precision of the run, so that an fp32 run depends
on the number of processes only by rounding.

>>> w = torch.nn.Parameter(torch.eye(2))
>>> optimizer = Muon([w], lr=0.1, weight_decay=0.0, momentum=0.95, dtype=torch.float32)
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from training.machine.parallel import split, whole

# Coefficients of the polynomial a x + b x^3 + c x^5. They raise small singular values fast: after
# five rounds all singular values lie between about 0.7 and 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5
STACK_ELEMENTS = 1 << 24  # most elements of the matrices that are made orthogonal together


class Muon(torch.optim.Optimizer):
    """An optimizer for matrices; its updates have AdamW's RMS (arXiv 2502.16982, section 2.2).

    `packed`: the rows of each matrix in a parameter that holds several. Each is made orthogonal by
    itself, for the queries of a layer have nothing to do with its values.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float,
        dtype: torch.dtype,
        packed: Mapping[Tensor, Sequence[int]] | None = None,
    ):
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, defaults)
        self.dtype = dtype  # precision of the matrix products
        self.packed = packed or {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameters in alike(group["params"], self.packed):
                # Many small products would leave a GPU waiting for the next one to be launched.
                stack = torch.stack([self.direction(p, group["momentum"]) for p in parameters])
                sizes = self.packed.get(parameters[0], [stack.shape[1]])
                stacks = [orthogonal(part) for part in stack.split(list(sizes), dim=1)]
                for parameter, *parts in zip(parameters, *stacks):
                    update = torch.cat([scaled(part.to(parameter.dtype)) for part in parts])
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(split(update, parameter), alpha=-group["lr"])

    def direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """Average the gradient into the momentum; return the whole matrix to go along."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return whole(gradient.lerp(average, momentum)).to(self.dtype)  # Nesterov


def alike(
    matrices: Iterable[Tensor], packed: Mapping[Tensor, Sequence[int]]
) -> Iterator[list[Tensor]]:
    """Yield matrices of the same shape and parts together, as many as fit STACK_ELEMENTS."""
    shapes: dict[tuple, list[Tensor]] = {}
    for matrix in matrices:
        shapes.setdefault((matrix.shape, *packed.get(matrix, ())), []).append(matrix)
    for same in shapes.values():
        n = max(1, STACK_ELEMENTS // same[0].numel())
        yield from (same[i : i + n] for i in range(0, len(same), n))


def scaled(update: Tensor) -> Tensor:
    """Give an orthogonal update (m, n) the RMS of AdamW's, about 0.2."""
    return update * (0.2 * math.sqrt(max(update.shape)))


def orthogonal(matrices: Tensor) -> Tensor:
    """Return approximately U V^T of the singular value decompositions: (N, m, n) -> (N, m, n).

    Newton-Schulz iterations compute it faster than the decomposition would.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x
