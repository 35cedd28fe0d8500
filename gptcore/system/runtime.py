"""Which package of ONNX Runtime is installed, whether it works, and what a model runs on.

There are two packages that write the same files, so only one of them may be installed:
onnxruntime for the CPU, and onnxruntime-gpu, which is 250 MB larger and also supports CUDA.

>>> runtime_line({"onnxruntime": "1.31.1"}, for_cuda=False)
'onnxruntime 1.31.1, for the CPU'
"""

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import distributions

from gptcore.checks import UserError

CPU, GPU = "onnxruntime", "onnxruntime-gpu"
WITH_CUDA = '"onnxruntime-gpu[cuda,cudnn]"'  # the extras install CUDA's libraries
REPAIR = f"pip uninstall -y {CPU} {GPU}, then pip install {CPU}, or {WITH_CUDA} for an NVIDIA GPU"


def installed_runtimes() -> dict[str, str]:
    """Return the versions of the two packages that are installed, by name."""
    names = {d.name.lower().replace("_", "-"): d.version for d in distributions() if d.name}
    return {name: names[name] for name in (CPU, GPU) if name in names}


def has_gpu_package() -> bool:
    """Return whether onnxruntime-gpu is published for this system."""
    linux = sys.platform == "linux" and platform.machine() == "x86_64"
    return linux or sys.platform == "win32"


def runtime_line(installed: Mapping[str, str], for_cuda: bool) -> str:
    """Return a line that says which package was found, and how to add CUDA if it lacks that.

    `for_cuda`: whether a package with CUDA exists for this system.
    """
    found = " and ".join(f"{name} {version}" for name, version in installed.items())
    if len(installed) == 2:
        return f"{found} are both installed and overwrite each other's files: {REPAIR}"
    if GPU in installed:
        return f"{found}, for CUDA and the CPU"
    if for_cuda:
        other = f"pip uninstall -y {CPU}, then pip install {WITH_CUDA}"
        return f"{found}, for the CPU; for an NVIDIA GPU: {other}"
    return f"{found}, for the CPU"


def check_runtime() -> None:
    """Raise UserError with the remedy if ONNX Runtime is missing or incomplete."""
    try:
        from onnxruntime import InferenceSession  # noqa: F401
    except ImportError as error:
        raise UserError(f"ONNX Runtime cannot be loaded ({error}): {REPAIR}") from None
