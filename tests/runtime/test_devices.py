"""Where a model runs: the device asked for, or an error that names the choices."""

import pytest
from conftest import NANO

from gptcore.checks import UserError
from gptcore.engine import onnx_session
from gptcore.model import load_model
from gptcore.translation.onnx import load_translator


@pytest.mark.parametrize("load", [load_model, load_translator])
@pytest.mark.parametrize("device", ["gpu", "CPU", "cuda:0", ""])
def test_an_unknown_device_is_an_error_that_names_the_choices(load, device: str) -> None:
    with pytest.raises(UserError, match=f"unknown device '{device}': .*known are cpu, cuda"):
        load(NANO, device=device)


@pytest.mark.parametrize("load", [load_model, load_translator])
def test_cuda_is_refused_where_there_is_none(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: False)
    with pytest.raises(UserError, match=r"device='cuda': .* finds no CUDA GPU"):
        load(NANO, device="cuda")


def test_the_device_asked_for_is_the_one_that_runs() -> None:
    assert load_model(NANO, threads=1, device="cpu").provider == "CPUExecutionProvider"
