"""Muon is PyTorch's own, but for how updates become orthogonal and even: that is written out."""

from typing import Any

import pytest
import torch
from torch import nn

from training.optim import muon
from training.optim.muon import Muon, orthogonal, row_factors

SHAPES = [(8, 8), (24, 8), (8, 40), (1, 16)]
SETTINGS = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
BETA2 = 0.8


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch's Muon make a matrix orthogonal in four rounds, by a nearer bound."""

    def few(matrix: torch.Tensor, *_: Any) -> torch.Tensor:
        x = matrix.bfloat16()
        x = x / (x.double() @ x.double().T).norm() ** 0.5
        for _ in range(4):
            x = 3.4445 * x + (-4.7750 * (x @ x.T) + 2.0315 * (x @ x.T) @ (x @ x.T)) @ x
        return x

    monkeypatch.setattr(torch.optim._muon, "_zeropower_via_newtonschulz", few)


class Reference(torch.optim.Muon):
    """PyTorch's Muon, whose updates are then made even as NorMuon's paper writes it."""

    def __init__(self, weights: list[nn.Parameter]):
        super().__init__(weights, **SETTINGS, adjust_lr_fn="match_rms_adamw")
        self.weights, self.moments = weights, [torch.zeros(len(w)) for w in weights]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        decayed = [w * (1 - SETTINGS["lr"] * SETTINGS["weight_decay"]) for w in self.weights]
        super().step()
        for weight, before, moments in zip(self.weights, decayed, self.moments):
            update = before - weight
            moments.mul_(BETA2).add_((1 - BETA2) * update.square().mean(dim=1))
            rows = update / moments.sqrt()[:, None]
            weight.copy_(before - rows * update.norm() / rows.norm())


def ours(weights: list[nn.Parameter], **more: Any) -> Muon:
    return Muon(weights, **SETTINGS, beta2=BETA2, dtype=torch.bfloat16, **more)


def trained(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> list[torch.Tensor]:
    """The weights after some steps with gradients that do not depend on where they are cut."""
    generator, sizes = torch.Generator().manual_seed(1), [w.numel() for w in weights]
    for _ in range(5):
        gradients = torch.randn(sum(sizes), generator=generator).split(sizes)
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient.view_as(weight)
        optimizer.step()
    return [w.detach() for w in weights]


def fresh() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [*SHAPES, *SHAPES, *SHAPES]  # those of one shape are computed together
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_in_bfloat16_it_is_pytorchs() -> None:
    some, others = fresh(), fresh()
    for a, b in zip(trained(ours(some), some), trained(Reference(others), others)):
        assert torch.allclose(a, b, atol=2e-3)


def test_large_matrices_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together, apart = fresh(), fresh()
    expected = trained(ours(together), together)
    monkeypatch.setattr(muon, "STACK_ELEMENTS", 2 * 8 * 24)
    assert [len(some) for some in muon.alike(apart, {})] == [3, 2, 1, 1, 1, 1, 3]
    for a, b in zip(trained(ours(apart), apart), expected):
        assert torch.allclose(a, b, atol=2e-3)  # a norm of several is rounded otherwise


def test_packed_matrices_are_updated_as_if_each_stood_alone() -> None:
    """Of three parameters of one shape two are packed, in different ways."""
    whole = [nn.Parameter(p.detach()) for p in torch.randn(3, 24, 8)]
    sizes: dict[torch.Tensor, list[int]] = {whole[0]: [8, 12, 4], whole[1]: [12, 12]}
    apart = [
        nn.Parameter(part.detach().clone())
        for weight in whole
        for part in weight.split(sizes.get(weight, 24))
    ]
    found, expected = (
        torch.cat(trained(optimizer, weights))
        for optimizer, weights in ((ours(whole, packed=sizes), whole), (Reference(apart), apart))
    )
    assert torch.allclose(found, expected, atol=2e-3)


def test_rows_become_even_and_the_update_keeps_its_size() -> None:
    update = (
        torch.randn(6, 8, generator=torch.Generator().manual_seed(3)) * torch.arange(6)[:, None]
    )
    moments = torch.zeros(6, 1)
    size = update.norm() * 0.2 * 8**0.5
    first = update * row_factors(update, moments, [6], 0.9)
    assert torch.allclose(first[1:].norm(dim=1), size / 5**0.5)
    assert torch.allclose(first.norm(), size) and not first[0].any()
    turned = update.flip(0)  # what was small is large now
    second = turned * row_factors(turned, moments, [6], 0.9)
    assert torch.allclose(second.norm(), size)
    assert second[0].norm() > second[1].norm() > second[4].norm()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_become_alike(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    values = torch.linalg.svdvals(orthogonal(matrix[None])[0])
    assert values.min() > 0.3 and values.max() < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    turned = torch.linalg.svd(orthogonal(matrix[None])[0], full_matrices=False)
    assert torch.allclose(turned[0] @ turned[2], u @ v, atol=1e-3)
