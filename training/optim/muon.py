"""Muon: SGD with momentum and orthogonal updates (Jordan et al. 2024), with rows of one size.

The tests compare it with torch.optim.Muon. Unlike that, it also takes parameters that are split
between processes (FSDP), and computes in the precision of the run, so that an fp32 run depends on
the number of processes only by rounding.

>>> w = torch.nn.Parameter(torch.eye(2))
>>> optimizer = Muon([w], lr=0.1, weight_decay=0.0, momentum=0.9, beta2=0.95, dtype=torch.float32)
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from training.machine.parallel import split, whole

# Coefficients of the polynomial a x + b x^3 + c x^5. They raise small singular values fast: after
# four rounds all that were above a hundredth of the bound lie between about 0.7 and 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 4
TINY = 1e-20  # avoids a division by zero where there is no gradient
STACK_ELEMENTS = 1 << 24  # most elements of the matrices that are made orthogonal together


class Muon(torch.optim.Optimizer):
    """An optimizer for matrices; its updates have AdamW's RMS (arXiv 2502.16982, section 2.2).

    `beta2`: decay of the mean square of each row's updates, see row_factors. `packed`: the
    rows of each matrix in a parameter that holds several. Each is made orthogonal by itself, for
    the queries of a layer have nothing to do with its values.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float,
        beta2: float,
        dtype: torch.dtype,
        packed: Mapping[Tensor, Sequence[int]] | None = None,
    ):
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "beta2": beta2}
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
                    update = torch.cat(parts)
                    moments = self.row_moments(parameter, update)
                    factors = row_factors(update, moments, sizes, group["beta2"])
                    update = update.to(parameter.dtype).mul_(factors)
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

    def row_moments(self, parameter: Tensor, update: Tensor) -> Tensor:
        """Return the mean squares of the rows of a parameter's updates (m, n) so far: (m, 1)."""
        state = self.state[parameter]
        if "row_moments" not in state:
            state["row_moments"] = update.new_zeros((len(update), 1), dtype=torch.float32)
        return state["row_moments"]


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


def row_factors(update: Tensor, moments: Tensor, sizes: Sequence[int], beta2: float) -> Tensor:
    """Return the factor of each row of an update (m, n): (m, 1).

    The rows of an orthogonal update differ in size, so some neurons would learn faster than others.
    The factors give the rows of a matrix one size over time (NorMuon, arXiv 2510.05491), and the
    matrix the RMS of AdamW's updates, about 0.2. `moments`: see row_moments; this update is
    averaged into it. `sizes`: the number of rows of each matrix.
    """
    squares = torch.linalg.vector_norm(update, dim=1, keepdim=True, dtype=torch.float32) ** 2
    moments.lerp_(squares / update.shape[1], 1 - beta2)
    even = moments.clamp(min=TINY).rsqrt()
    found = []
    for size, before, factors in zip(sizes, squares.split(list(sizes)), even.split(list(sizes))):
        after = (before * factors**2).sum().clamp(min=TINY)
        scale = 0.2 * math.sqrt(max(size, update.shape[1]))
        found.append(factors * (scale * (before.sum() / after).sqrt()))
    return torch.cat(found)


def orthogonal(matrices: Tensor) -> Tensor:
    """Return approximately U V^T of the singular value decompositions: (N, m, n) -> (N, m, n).

    Newton-Schulz iterations compute it faster than the decomposition would. They need singular
    values of at most 1, and the nearer the largest is to 1, the fewer rounds. The root of the norm
    of x x^T bounds the largest value, never less closely than the usual bound, the norm of x, and
    the first round needs that product anyway.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)  # no square is too small for bf16
    square = x @ x.mT
    bound = square.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    x, square = x * bound.rsqrt(), square / bound
    for n_left in reversed(range(ROUNDS)):
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
        square = x @ x.mT if n_left else square
    return x.mT if is_tall else x
