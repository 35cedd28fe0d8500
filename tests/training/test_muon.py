"""Muon is PyTorch's own, to rounding; in fp32, too, and for matrices of every shape."""

import pytest
import torch
from torch import nn

from training.optim import muon
from training.optim.muon import Muon, orthogonal

SHAPES = [(8, 8), (24, 8), (8, 40), (1, 16)]


def trained(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> list[torch.Tensor]:
    """The weights after some steps with made-up gradients."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.step()
    return [w.detach() for w in weights]


def fresh() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [*SHAPES, *SHAPES, *SHAPES]  # those of one shape are computed together
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_in_bfloat16_it_is_pytorchs() -> None:
    ours, theirs = fresh(), fresh()
    settings = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
    reference = torch.optim.Muon(theirs, **settings, adjust_lr_fn="match_rms_adamw")
    for a, b in zip(
        trained(Muon(ours, **settings, dtype=torch.bfloat16), ours), trained(reference, theirs)
    ):
        assert torch.allclose(a, b, atol=2e-3)


def test_large_matrices_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
    together, apart = fresh(), fresh()
    expected = trained(Muon(together, **settings, dtype=torch.bfloat16), together)
    monkeypatch.setattr(muon, "STACK_ELEMENTS", 2 * 8 * 24)
    assert [len(some) for some in muon.alike(apart, {})] == [3, 2, 1, 1, 1, 1, 3]
    for a, b in zip(trained(Muon(apart, **settings, dtype=torch.bfloat16), apart), expected):
        assert torch.equal(a, b)


def test_packed_matrices_are_updated_as_if_each_stood_alone() -> None:
    """Of three parameters of one shape two are packed, in different ways."""
    settings = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
    whole = [nn.Parameter(p.detach()) for p in torch.randn(3, 24, 8)]
    sizes: dict[torch.Tensor, list[int]] = {whole[0]: [8, 12, 4], whole[1]: [12, 12]}
    apart = [
        nn.Parameter(part.detach().clone())
        for weight in whole
        for part in weight.split(sizes.get(weight, 24))
    ]
    ours = Muon(whole, **settings, dtype=torch.bfloat16, packed=sizes)
    theirs = torch.optim.Muon(apart, **settings, adjust_lr_fn="match_rms_adamw")
    found, expected = (
        torch.cat(trained_alike(optimizer, weights))
        for optimizer, weights in ((ours, whole), (theirs, apart))
    )
    assert torch.allclose(found, expected, atol=2e-3)


def trained_alike(
    optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]
) -> list[torch.Tensor]:
    """The weights after some steps with gradients that do not depend on where they are cut."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        gradients = torch.randn(72, 8, generator=generator)
        for weight, gradient in zip(weights, gradients.split([len(w) for w in weights])):
            weight.grad = gradient
        optimizer.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_become_alike(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    values = torch.linalg.svdvals(orthogonal(matrix[None])[0])
    assert values.min() > 0.3 and values.max() < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    turned = torch.linalg.svd(orthogonal(matrix[None])[0], full_matrices=False)
    assert torch.allclose(turned[0] @ turned[2], u @ v, atol=1e-3)
