"""Which package of ONNX Runtime is installed: the page says it, and how to get the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from gptcore.system.runtime import installed_runtimes, runtime_line


def found_of(folder: Path, *names: str) -> dict[str, str]:
    """What is found where pip has written these packages, and one that nobody asked for."""
    for name in (*names, "onnx"):
        info = folder / f"{name.replace('-', '_')}-1.31.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.31.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder)])
        return installed_runtimes()


def test_the_package_for_the_cpu_says_how_to_get_cuda(tmp_path: Path) -> None:
    found = found_of(tmp_path, "onnxruntime")
    assert found == {"onnxruntime": "1.31.0"}
    assert runtime_line(found, for_cuda=True) == (
        "onnxruntime 1.31.0, for the CPU; for an NVIDIA GPU: pip uninstall -y onnxruntime, then "
        'pip install "onnxruntime-gpu[cuda,cudnn]"'
    )
    assert runtime_line(found, for_cuda=False) == "onnxruntime 1.31.0, for the CPU"


def test_the_package_for_cuda_has_all(tmp_path: Path) -> None:
    found = found_of(tmp_path, "onnxruntime-gpu")
    assert found == {"onnxruntime-gpu": "1.31.0"}
    assert runtime_line(found, for_cuda=True) == "onnxruntime-gpu 1.31.0, for CUDA and the CPU"


def test_both_together_break_each_other_and_the_remedy_is_told(tmp_path: Path) -> None:
    found = found_of(tmp_path, "onnxruntime", "onnxruntime-gpu")
    assert runtime_line(found, for_cuda=True) == (
        "onnxruntime 1.31.0 and onnxruntime-gpu 1.31.0 are both installed and overwrite each "
        "other's files: pip uninstall -y onnxruntime onnxruntime-gpu, then pip install "
        'onnxruntime, or "onnxruntime-gpu[cuda,cudnn]" for an NVIDIA GPU'
    )


def test_what_is_installed_here_is_found() -> None:
    found = installed_runtimes()
    assert found and set(found) <= {"onnxruntime", "onnxruntime-gpu"}


@pytest.mark.parametrize("words", [["--port", "0"], ["chat"]], ids=["page", "chat"])
def test_half_an_onnx_runtime_is_an_error_with_the_remedy(tmp_path: Path, words: list[str]) -> None:
    """As pip leaves it when one of two that were installed together is uninstalled."""
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    result = subprocess.run(
        [sys.executable, "-m", "gptcore", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: ONNX Runtime cannot be loaded (cannot import name")
    assert "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install" in result.stderr
    assert result.stderr.count("\n") == 1
