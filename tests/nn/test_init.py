"""How a new model's parameters are drawn: GPT-2's way is in test_model.py, the others are here."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from gptcore.config import PRESETS, TRANSLATORS
from gptcore.nn import build_model


def fresh(preset: str) -> nn.Module:
    """A new model of the preset's kind, with fewer layers and tokens."""
    changes = {"vocab_size": 150, "n_layer": 2, "n_embd": 128, "n_inner": 80}
    if preset in TRANSLATORS:
        changes |= {"source_vocab_size": 150, "n_encoder_layer": 3}
    torch.manual_seed(0)
    return build_model(dataclasses.replace(PRESETS[preset], **changes))


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """The matrices and tables as the documents have them: q, k and v each for itself."""
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            n = {"qkv": 3, "kv": 2}.get(name.split(".")[-2], 1)
            found |= {f"{name} {i}": part for i, part in enumerate(parameter.detach().chunk(n))}
    return found


def norms(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    modules = [module for name, module in model.named_modules() if name.endswith("norm")]
    return [(m.weight, m.bias) for m in modules if not isinstance(m, nn.Identity)]


def is_uniform(tensor: Tensor, bound: float) -> bool:
    """Drawn from -bound..bound, up to both ends."""
    spread = tensor.std().item() * math.sqrt(3) / bound
    return bound * 0.95 < tensor.abs().max() <= bound and 0.95 < spread < 1.05


def test_the_handbook_begins_with_normal_matrices_and_no_biases() -> None:
    model = fresh("handbook")
    for name, matrix in matrices(model).items():
        assert matrix.std().item() == pytest.approx(0.02, rel=0.05), name
        assert abs(matrix.mean().item()) < 1e-3, name
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert biases and all((bias == 0).all() for bias in biases)


@pytest.mark.parametrize("preset", ["annotated", "vaswani", "original"])
def test_xavier_takes_each_matrix_for_itself(preset: str) -> None:
    model = fresh(preset)
    for name, matrix in matrices(model).items():
        assert is_uniform(matrix, math.sqrt(6 / sum(matrix.shape))), name
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            assert 0 < module.bias.abs().max() <= module.in_features**-0.5, "as PyTorch draws it"


@pytest.mark.parametrize("preset", ["wayland", "wayland_post"])
def test_wayland_begins_as_pytorch_draws(preset: str) -> None:
    model = fresh(preset)
    table = model.embed.weight
    assert table.std().item() == pytest.approx(1.0, rel=0.05) and table.abs().max() > 2.5
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            assert is_uniform(module.weight, bound), name
            assert module.bias is None or 0 < module.bias.abs().max() <= bound, name


@pytest.mark.parametrize(
    "preset", ["wayland", "wayland_post", "annotated", "vaswani", "original", "handbook"]
)
def test_norms_begin_as_ones_and_zeros(preset: str) -> None:
    found = norms(fresh(preset))
    assert found
    for weight, bias in found:
        assert (weight == 1).all() and (bias == 0).all()


def test_the_translator_begins_as_gpt2_with_small_residual_outputs() -> None:
    model = fresh("translator")
    for name, matrix in matrices(model).items():
        is_output = ".out.weight" in name or ".down.weight" in name
        std = 0.02 / math.sqrt(2 * 2) if is_output else 0.02
        assert matrix.std().item() == pytest.approx(std, rel=0.05), name
