"""Models and sessions over ONNX Runtime, used by the page and by embedding programs. No torch.

>>> model = load_model("models/default")                             # doctest: +SKIP
>>> with model.lease([1, 2, 3]) as session:                          # doctest: +SKIP
...     logits = session.prefill([1, 2, 3])                          # (vocab_size,)
"""

import ctypes
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, takewhile
from pathlib import Path

import numpy as np
import onnxruntime as ort

from gptcore.bundle import VARIANTS, Bundle, load_bundle
from gptcore.checks import UserError, check_choice
from gptcore.feeds import no_cache, token_feeds
from gptcore.generate import Interrupted, Stop
from gptcore.system.cores import fastest, median_seconds, thread_counts

DEVICES = ("cpu", "cuda")
ON_CUDA = ("fp16", "fp32", "q8", "q4", "int8")  # best first; int8's products run on the CPU
MAX_SESSIONS = 8  # most conversations whose caches are kept
MAX_REPLIES = 1000  # most replies whose ids are kept


class RunStop:
    """A flag that another thread sets to end a generation, even while the graph is running."""

    def __init__(self) -> None:
        self.options = ort.RunOptions()

    def set(self) -> None:
        self.options.terminate = True

    def is_set(self) -> bool:
        return self.options.terminate


class OnnxModel:
    """A loaded model folder that lends sessions. It is safe to use from several threads."""

    def __init__(
        self, bundle: Bundle, inference: ort.InferenceSession, threads: int, variant: str = "fp32"
    ):
        check_graph(bundle, inference)
        self.bundle, self.config, self.tokenizer = bundle, bundle.config, bundle.tokenizer
        self.inference, self.threads = inference, threads
        self.variant, self.file_name = variant, Path(VARIANTS[variant]).name
        self.provider = inference.get_providers()[0]  # in use; perhaps not the requested one
        self._lock = threading.Lock()
        self._sessions: list[OnnxSession] = []  # free sessions, least recently used first
        self.n_leased = 0  # number of running generations
        self._replies: OrderedDict[tuple[int, str], list[int]] = OrderedDict()

    @contextmanager
    def lease(self, ids: list[int]) -> "Iterator[OnnxSession]":
        """Lend a session for one generation: the one whose cache fits most of this prompt."""
        session = self._take(ids)
        with self._lock:
            self.n_leased += 1
        try:
            yield session
        finally:
            with self._lock:
                self._sessions = [*self._sessions, session][-MAX_SESSIONS:]
                self.n_leased -= 1

    def _take(self, ids: list[int]) -> "OnnxSession":
        with self._lock:
            best = max(self._sessions, key=lambda s: s.shared(ids), default=None)
            # A session that shares less than half of its ids with the prompt belongs to another
            # conversation (with the same system prompt, perhaps), which still needs its cache.
            if best is None or 2 * best.shared(ids) < len(best.ids):
                if len(self._sessions) < MAX_SESSIONS:
                    return OnnxSession(self)
                best = self._sessions[0]
            self._sessions.remove(best)
            return best

    def remember(self, before: list[int], text: str, ids: list[int]) -> None:
        """Store the ids that a reply was generated as, so that its cache fits the next prompt."""
        with self._lock:
            self._replies[hash(tuple(before)), text] = ids
            while len(self._replies) > MAX_REPLIES:
                self._replies.popitem(last=False)

    def recall(self, before: list[int], text: str) -> list[int] | None:
        with self._lock:
            return self._replies.get((hash(tuple(before)), text))


class OnnxSession:
    """One conversation: the ids that have been read, and their keys and values.

    `n_read` counts the tokens that this session has computed, cached ones not included.
    """

    def __init__(self, model: OnnxModel):
        self.config = model.config
        self.inference = model.inference
        self.cache_names = [i.name for i in self.inference.get_inputs()][3:]
        self.output_names = [o.name for o in self.inference.get_outputs()]
        on_cpu = model.provider == "CPUExecutionProvider"
        self.run = self.run_numpy if on_cpu else self.run_bound
        self.device = "cpu" if on_cpu else "cuda"
        self.ids: list[int] = []
        self.cache: list = no_cache(self.config)
        self.n_read = 0

    def shared(self, ids: list[int]) -> int:
        """Return how many leading ids of a prompt equal the ids read so far."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.ids, ids)))

    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        """Read a prompt and return logits (V,); only what follows the cached part is computed."""
        # The last token is always computed, because the result is its logits.
        keep = min(self.shared(ids), len(ids) - 1)
        if keep < len(self.ids):
            self.ids = self.ids[:keep]
            self.cache = [np.ascontiguousarray(to_numpy(c)[:, :, :keep]) for c in self.cache]
        return self._read(ids[keep:], stop)

    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        """Read one more token and return logits (V,)."""
        return self._read([token_id], stop)

    def _read(self, new_ids: list[int], stop: Stop | None) -> np.ndarray:
        past, total = len(self.ids), len(self.ids) + len(new_ids)
        if not (total <= self.config.block_size):
            raise UserError(f"{total} tokens do not fit into the context {self.config.block_size}")
        feeds = token_feeds(np.array([new_ids], np.int64), past)
        stop = stop or RunStop()
        if stop.is_set():
            raise Interrupted
        try:
            # Any other kind of Stop takes effect between two runs of the graph, not during one.
            options = stop.options if isinstance(stop, RunStop) else None
            logits, cache = self.run(feeds, options)
        except Exception:  # ONNX Runtime has no exception class for a termination
            if stop.is_set():
                raise Interrupted from None
            raise
        self.ids, self.cache = self.ids + new_ids, cache
        self.n_read += len(new_ids)
        return logits[0, -1]

    def run_numpy(self, feeds: dict, options: ort.RunOptions | None) -> tuple[np.ndarray, list]:
        """Run with numpy arrays, which is fastest on the CPU."""
        feeds |= zip(self.cache_names, self.cache)
        logits, *cache = self.inference.run(self.output_names, feeds, options)
        return logits, cache

    def run_bound(self, feeds: dict, options: ort.RunOptions | None) -> tuple[np.ndarray, list]:
        """Run with the cache kept on the GPU: only ids are copied to it and logits back."""
        binding = self.inference.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, value in zip(self.cache_names, self.cache):
            if isinstance(value, np.ndarray):
                value = ort.OrtValue.ortvalue_from_numpy(value, self.device, 0)
            binding.bind_ortvalue_input(name, value)
        binding.bind_output(self.output_names[0], "cpu")
        for name in self.output_names[1:]:
            binding.bind_output(name, self.device)
        self.inference.run_with_iobinding(binding, options)
        logits, *cache = binding.get_outputs()
        return logits.numpy(), cache


def to_numpy(value: "np.ndarray | ort.OrtValue") -> np.ndarray:
    return value if isinstance(value, np.ndarray) else value.numpy()


def load_model(
    folder: str | Path,
    threads: int | None = None,
    device: str | None = None,
    variant: str | None = None,
) -> OnnxModel:
    """Load a model folder; `device` is "cpu" or "cuda".

    Arguments that are None are chosen: CUDA if there is a GPU; on the CPU the fastest variant of
    the folder (see gptcore.bundle), then the faster of one thread and all cores. Each candidate is
    timed for a few milliseconds. Small models, and any model on busy cores, are faster on one
    thread. Raises UserError if the folder, device or variant cannot be used.
    """
    device = choose_device(device)
    bundle = load_bundle(folder)
    if variant is not None:
        check_choice("variant", variant, VARIANTS)
        if variant not in bundle.variants:
            raise UserError(
                f"{folder} has no variant {variant!r}, only {', '.join(bundle.variants)}: export "
                f"it with --quantize {variant}"
            )
    if device == "cuda":
        name = variant or next(name for name in ON_CUDA if name in bundle.variants)
        return open_model(bundle, "cuda", threads or os.cpu_count() or 1, name)
    # fp16 is never faster on a CPU, and some CPUs cannot load it
    names = [variant] if variant else [name for name in bundle.variants if name != "fp16"]
    models = (open_model(bundle, "cpu", threads or 1, name) for name in names)
    best = fastest(models, step_seconds)
    counts = [threads] if threads else thread_counts()
    others = (open_model(bundle, "cpu", n, best.variant) for n in counts if n != best.threads)
    return fastest(chain([best], others), step_seconds)


def choose_device(device: str | None) -> str:
    """Return `device`, or by default CUDA if there is a GPU. Raises UserError for other names."""
    if device is None:
        return "cuda" if has_cuda() else "cpu"
    check_choice("device", device, DEVICES)
    if device == "cuda" and not has_cuda():
        raise UserError("device='cuda': ONNX Runtime finds no CUDA GPU here: choose 'cpu'")
    return device


def open_model(bundle: Bundle, device: str, threads: int, variant: str) -> OnnxModel:
    inference = open_inference(bundle.variants[variant], device, threads)
    return OnnxModel(bundle, inference, threads, variant)


def open_inference(path: Path, device: str, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device == "cuda":
        ort.preload_dlls()  # the CUDA libraries that pip may have installed
        providers.insert(0, "CUDAExecutionProvider")
    try:
        return ort.InferenceSession(str(path), options, providers=providers)
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


def check_graph(bundle: Bundle, inference: ort.InferenceSession) -> None:
    """Raise UserError if the graph's cache does not have the configuration's shape."""
    config = bundle.config
    caches = [i for i in inference.get_inputs() if i.name.startswith("past_key_values.")]
    shapes = {(i.shape[1], i.shape[3]) for i in caches}
    if len(caches) != 2 * config.n_layer or shapes != {(config.n_kv_head, config.head_dim)}:
        raise UserError(
            f"the graph in {bundle.path} and its gptcore.json are of different exports: "
            "export the model again"
        )


def step_seconds(model: OnnxModel) -> float:
    """Return the median time of a decoding step after a short prompt, in seconds."""
    session, block_size = OnnxSession(model), model.config.block_size
    n_prompt = min(32, block_size // 2)
    session.prefill([0] * n_prompt)
    return median_seconds(lambda: session.step(0), block_size - n_prompt)


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
