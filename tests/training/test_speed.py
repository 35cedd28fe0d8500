"""What makes training fast changes nothing of its result, and says when it cannot be had."""

import dataclasses

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor

from gptcore.config import DECODERS, PRESETS, ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT, whole_sequence
from training.data.rows import IGNORED
from training.lora import add_adapters
from training.machine.devices import autocast, speed_up
from training.machine.fast_attention import Fused, InParts, use_fast_attention
from training.machine.flops import flops_per_token, peak_flops, utilisation
from training.step import build_loss, summed_loss

CPU = torch.device("cpu")
SMALL = dataclasses.replace(PRESETS["tiny"], block_size=300)  # three parts, the last one short


def two_models(form) -> tuple[GPT, GPT]:
    """The same weights with the exported attention and with another form of it."""
    torch.manual_seed(0)
    plain, fast = build_model(SMALL), build_model(SMALL)
    fast.load_state_dict(plain.state_dict())
    for block in fast.blocks:
        block.attention.__class__ = form
    return plain, fast


def gradients(model: GPT, ids: Tensor) -> list[Tensor]:
    model(**whole_sequence(ids))[0].square().mean().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("form", [InParts, Fused])
def test_every_form_of_attention_has_the_result_and_gradients_of_the_exported_one(form) -> None:
    plain, fast = two_models(form)
    ids = torch.randint(0, SMALL.vocab_size, (2, 300))
    torch.testing.assert_close(fast(**whole_sequence(ids))[0], plain(**whole_sequence(ids))[0])
    for ours, theirs in zip(gradients(fast, ids), gradients(plain, ids)):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("form", [InParts, Fused])
def test_every_form_of_attention_goes_on_from_a_cache(form) -> None:
    plain, fast = two_models(form)
    ids = torch.randint(0, SMALL.vocab_size, (1, 300))
    _, cache = fast(**whole_sequence(ids[:, :140]))
    position_ids = torch.arange(140, 300)[None]
    later, _ = fast(ids[:, 140:], torch.ones_like(ids), position_ids, cache)
    torch.testing.assert_close(later, plain(**whole_sequence(ids))[0][:, 140:])


def test_the_cpu_computes_in_parts_and_a_gpu_in_one_operator() -> None:
    model = build_model(PRESETS["tiny"])
    for device, form in (("cpu", InParts), ("cuda", Fused)):
        use_fast_attention(model, torch.device(device))
        assert {type(block.attention) for block in model.blocks} == {form}


def test_a_short_run_is_not_compiled_and_a_translator_never() -> None:
    assert not speed_up(build_model(PRESETS["tiny"]), "auto", CPU, flops=1e9)
    assert not speed_up(build_model(PRESETS["tiny"]), "off", CPU, flops=1e18)
    translator = dataclasses.replace(PRESETS["translator"], n_layer=1, n_encoder_layer=1)
    assert not speed_up(build_model(translator), "on", CPU, flops=1e18)


@pytest.mark.slow
def test_without_a_working_compiler_training_goes_on_and_says_so(
    capsys, tmp_path, monkeypatch
) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    model = build_model(PRESETS["tiny"])
    with inductor.patch({"cpp.cxx": (str(broken),)}):
        assert not speed_up(model, "on", CPU, flops=0)
    assert "training without it" in capsys.readouterr().out
    ids = torch.zeros(1, 4, dtype=torch.long)
    assert model(**whole_sequence(ids))[0].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_compiled_loss_is_the_loss(dtype: torch.dtype, smoothing: float) -> None:
    torch.manual_seed(0)
    targets = torch.randint(0, 700, (300,))
    targets[::3] = IGNORED
    plain = (torch.randn(300, 700) * 5).to(dtype).requires_grad_()
    fused = plain.detach().clone().requires_grad_()
    with autocast(CPU, torch.bfloat16):
        reference = summed_loss(plain, targets, smoothing)
        measured = build_loss(is_compiled=True)(fused, targets, smoothing)
    assert measured.item() == pytest.approx(reference.item(), rel=1e-5)
    reference.backward()
    measured.backward()
    torch.testing.assert_close(fused.grad, plain.grad, atol=2e-3, rtol=1e-2)


def counted(config: ModelConfig, rank: int = 0) -> int:
    """FLOPs by the parameters of a model that is built, without tables that are only looked up."""
    with torch.device("meta"):
        model = build_model(config)
        if rank:
            add_adapters(model, rank)
    tables = {"position.table"} if config.tied_embeddings else {"position.table", "embed.weight"}
    weights = sum(
        (6 if p.requires_grad else 4) * p.numel()
        for name, p in model.named_parameters()
        if name not in tables
    )
    width = config.n_head * config.head_dim
    return weights + 12 * config.n_layer * width * config.block_size


@pytest.mark.parametrize("preset", DECODERS)
def test_flops_are_those_of_what_the_model_multiplies(preset: str) -> None:
    config = DECODERS[preset]
    assert flops_per_token(config) == pytest.approx(counted(config), rel=0.02)  # without biases


def test_flops_follow_the_shape_and_the_adapters() -> None:
    changes = {"tied_embeddings": False}, {"position": "learned"}, {"head_size": 64}
    for config in (dataclasses.replace(SMALL, **change) for change in changes):
        assert flops_per_token(config) == pytest.approx(counted(config), rel=0.02)
    assert flops_per_token(SMALL, lora=2) == pytest.approx(counted(SMALL, 2), rel=0.02)
    shorter = flops_per_token(SMALL) - flops_per_token(SMALL, row_tokens=100)
    assert shorter == 12 * SMALL.n_layer * SMALL.n_embd * (SMALL.block_size - 100)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165),
    ],
)
def test_a_card_is_known_by_the_name_cuda_gives_it(name: str, tflops: int) -> None:
    assert peak_flops(name) == tflops * 1e12
    assert utilisation(tflops * 5e11, name) == 0.5


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", ""],
)
def test_an_unknown_card_has_no_utilisation(name: str) -> None:
    assert peak_flops(name) is None
    assert utilisation(1e12, name) is None
