"""What is installed for training and tests leaves what was there as it was."""

import sys
from importlib.metadata import distributions

import onnxruntime as ort
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere requirements.txt takes no CUDA")
def test_no_package_replaces_the_onnx_runtime_that_can_use_cuda() -> None:
    """A reader of files that brings plain onnxruntime along would overwrite it."""
    installed = {found.metadata["Name"].lower() for found in distributions()}
    assert "onnxruntime-gpu" in installed and "onnxruntime" not in installed
    assert "CUDAExecutionProvider" in ort.get_available_providers()
