"""Sessions over ONNX Runtime, on the CPU or on CUDA. No torch.

>>> session = OnnxSession(open_inference("model.onnx"), config)  # doctest: +SKIP
>>> logits = session.prefill([1, 2, 3])  # doctest: +SKIP
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from gptcore.checks import UserError, check_choice
from gptcore.config import ModelConfig
from gptcore.engine.onnx_scan import check_straight
from gptcore.engine.slots import GrowingCache, ServingCache, Slots
from gptcore.system.runtime import WITH_CUDA

DEVICES = ("cpu", "cuda")
READ_AT_ONCE = 256  # tokens of a prompt
BESIDE = "session.model_external_initializers_file_folder_path"


class OnnxSession:
    """One conversation: the ids that have been read, and their keys and values."""

    def __init__(self, inference: ort.InferenceSession, config: ModelConfig):
        self.block_size = config.block_size
        self.slots = open_slots(inference, config, 1)

    def prefill(self, ids: list[int]) -> np.ndarray:
        """Read a prompt and return logits (V,); only what follows the cached part is computed."""
        # The last token is always computed, because the result is its logits.
        keep = min(int(self.slots.shared(ids)[0]), len(ids) - 1)
        self.slots.cut(0, keep)
        return self.read(ids[keep:])

    def step(self, token_id: int) -> np.ndarray:
        """Read one more token and return logits (V,)."""
        return self.read([token_id])

    def read(self, ids: list[int]) -> np.ndarray:
        total = int(self.slots.lengths[0]) + len(ids)
        if total > self.block_size:
            raise UserError(
                f"{total} tokens do not fit into the context {self.block_size}: shorten the prompt"
            )
        if len(ids) == 1 and total > 1:
            return self.slots.step(ids)[0].copy()
        for at in range(0, len(ids), READ_AT_ONCE):  # the portable graph's logits are of all T
            logits = self.slots.read(0, ids[at : at + READ_AT_ONCE])
        return logits[-1]


def open_slots(inference: ort.InferenceSession, config: ModelConfig, n_slots: int) -> Slots:
    """Return slots whose cache fits the graph: the serving graph, or the portable one."""
    names = [value.name for value in inference.get_inputs()]
    cache = ServingCache if "last_positions" in names else GrowingCache
    return Slots(cache(inference, config, n_slots), config)


def choose_device(device: str | None) -> str:
    """Return `device`, or by default CUDA if there is a GPU. Raises UserError for other names."""
    if device is None:
        return "cuda" if has_cuda() else "cpu"
    check_choice("device", device, DEVICES)
    if device == "cuda" and not has_cuda():
        raise UserError("device='cuda': ONNX Runtime finds no CUDA GPU here: choose 'cpu'")
    return device


def check_provider(device: str | None, provider: str) -> None:
    """Raise UserError if CUDA was asked for, and ONNX Runtime has taken the CPU in its place."""
    if device == "cuda" and provider != "CUDAExecutionProvider":
        raise UserError(
            "device='cuda': there is a GPU, but CUDA's libraries are missing: "
            f"pip install {WITH_CUDA}"
        )


def open_inference(
    path: str | Path, device: str = "cpu", threads: int = 1, content: bytes | None = None
) -> ort.InferenceSession:
    """Open a graph; `content` is read in place of its file, with the weights that lie beside it.

    Raises UserError if it cannot be loaded, or might never end.
    """
    check_straight(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry(BESIDE, str(Path(path).parent))
    providers: list[str | tuple[str, dict[str, str]]] = ["CPUExecutionProvider"]
    if device == "cuda":
        ort.preload_dlls()  # the CUDA libraries that pip may have installed
        providers.insert(0, ("CUDAExecutionProvider", {"use_tf32": "0"}))  # fp32 is fp32
    try:
        return ort.InferenceSession(content or str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime raises a different class for each kind of damage
        raise UserError(f"ONNX Runtime cannot load {path}: {cause(error)}") from None


def cause(error: Exception) -> str:
    """Return the remedy of a known error, or else ONNX Runtime's message, in one line."""
    text = " ".join(str(error).split())
    if "is till opset" in text or "IR version" in text:
        return f"it needs a newer version than {ort.__version__}; pip install -U onnxruntime"
    if "External data path" in text:
        return "its weights are in a file outside its folder, which is not read; export it again"
    return text


def has_cuda() -> bool:
    """Return whether ONNX Runtime was built with CUDA and the driver finds a GPU.

    Requesting CUDA without a GPU also works, but prints alarming red text.
    """
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return False
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )
