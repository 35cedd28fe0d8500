"""A model folder, loaded: what the page, the command line and embedding programs use. No torch.

>>> model = load_model("models/default")                             # doctest: +SKIP
>>> for piece in model.answer(Request([1, 2, 3])):                   # doctest: +SKIP
...     print(piece.text, end="")
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime as ort

from gptcore.bundle import LARGE_BYTES, VARIANTS, Bundle, graph_bytes, load_bundle
from gptcore.checks import UserError, check_choice
from gptcore.config import ModelConfig
from gptcore.engine.generate import Piece, Request, Stop
from gptcore.engine.onnx_session import (
    OnnxSession,
    check_provider,
    choose_device,
    open_inference,
    open_slots,
)
from gptcore.engine.scheduler import Engine
from gptcore.feeds import cache_shapes
from gptcore.system.cores import fastest, median_seconds, n_cores, thread_counts
from gptcore.system.pages import in_large_pages

if TYPE_CHECKING:
    from gptcore.translation.onnx import OnnxTranslator

ON_CUDA = ("fp16", "fp32", "q8", "q4f16", "q4", "int8")  # best first; int8 runs on the CPU
HALF = ("fp16", "q4f16")  # never faster on a CPU, and some CPUs cannot load them
CPU_BYTES_PER_S = 1e11  # about what a desktop computer's memory gives
CACHE_BYTES = 2**30  # most memory for the keys and values of all conversations
MAX_SLOTS = 64  # most conversations whose keys and values are kept


class OnnxModel:
    """A loaded model folder. It is safe to use from several threads."""

    def __init__(self, bundle: Bundle, inference: ort.InferenceSession, threads: int, variant: str):
        check_graph(bundle, inference)
        self.bundle, self.config, self.tokenizer = bundle, bundle.config, bundle.tokenizer
        self.inference, self.threads = inference, threads
        self.variant, self.file_name = variant, Path(VARIANTS[variant]).name
        self.provider = inference.get_providers()[0]  # in use; perhaps not the requested one
        n_slots = cache_bytes(self.config) // slot_bytes(self.config)
        slots = open_slots(inference, self.config, n_slots)
        self.engine = Engine(slots, self.tokenizer)
        # Of its weights and of its full cache.
        self.n_bytes = graph_bytes(bundle.path / VARIANTS[variant]) + cache_bytes(self.config)

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        """Yield the reply to a request. Closing the iterator ends the generation."""
        return self.engine.answer(request, stop)

    def recall(self, before: list[int], text: str) -> list[int] | None:
        """Return the ids that a reply was generated as, given the ids before it; None: unknown."""
        return self.engine.replies.recall(before, text)

    def session(self) -> OnnxSession:
        """Return a session of its own, beside the engine."""
        return OnnxSession(self.inference, self.config)


def load_model(
    folder: str | Path,
    threads: int | None = None,
    device: str | None = None,
    variant: str | None = None,
) -> OnnxModel:
    """Load a model folder; `device` is "cpu" or "cuda".

    Arguments that are None are chosen: CUDA, if it works here, or the CPU, whichever is faster; on
    the CPU the folder's fastest variant, among those with a serving graph if there are any (see
    gptcore.bundle), on one thread or on all cores. Each candidate is timed for a few milliseconds.
    Small models, and any model on busy cores, are faster on one thread. Raises
    UserError if the folder, device or variant cannot be used.
    """
    asked, device = device, choose_device(device)
    bundle = load_bundle(folder, with_weights=False)
    if variant is not None:
        check_choice("variant", variant, VARIANTS)
        if variant not in bundle.variants:
            raise UserError(
                f"{folder} has no variant {variant!r}, only {', '.join(bundle.variants)}: export "
                f"it with --quantize {variant}"
            )
    on_gpu = open_on_gpu(bundle, threads, variant) if device == "cuda" else None
    if not on_gpu:
        check_provider(asked, "CPUExecutionProvider")
    others = [name for name in bundle.variants if name not in HALF]
    names = [variant] if variant else [*bundle.serving] or others or [*bundle.variants]
    if on_gpu and (asked or variant in HALF or outruns_cpus(on_gpu, names)):
        return on_gpu
    on_cpu = fastest_on_cpu(bundle, threads, names)
    return fastest([on_gpu, on_cpu], step_seconds) if on_gpu else on_cpu


def open_on_gpu(bundle: Bundle, threads: int | None, variant: str | None) -> OnnxModel | None:
    """Open the variant that suits a GPU best, or the given one; None if CUDA does not load."""
    name = variant or next(name for name in ON_CUDA if name in bundle.variants)
    model = open_model(bundle, "cuda", threads or n_cores(), name)
    return model if model.provider == "CUDAExecutionProvider" else None


def outruns_cpus(on_gpu: OnnxModel, names: Sequence[str]) -> bool:
    """Return whether its step takes less time than a CPU needs to read the smallest file's weights.

    Then it need not be opened on the CPU, which takes long for a large model. A small one may be
    slower on a GPU, which waits for each of its many short operations to be launched.
    """
    variants = on_gpu.bundle.variants
    smallest = min(graph_bytes(variants[name]) for name in names)
    return step_seconds(on_gpu) < smallest / CPU_BYTES_PER_S


def fastest_on_cpu(bundle: Bundle, threads: int | None, names: Sequence[str]) -> OnnxModel:
    """Open the fastest variant with the number of threads that the smallest one is fastest on.

    One is in memory at a time, since it may fill it. A step of a file above LARGE_BYTES
    takes as long as reading its weights: one of three times the smallest's size is not tried.
    """

    @cache
    def seconds(n: int, name: str) -> float:
        return step_seconds(open_model(bundle, "cpu", n, name))

    sizes = {name: graph_bytes(bundle.variants[name]) for name in names}
    smallest = min(names, key=sizes.__getitem__)
    names = [n for n in names if sizes[n] < max(LARGE_BYTES, 3 * sizes[smallest])]
    counts = [threads] if threads else thread_counts()
    n = fastest(counts, lambda n: seconds(n, smallest))
    return open_model(bundle, "cpu", n, fastest(names, lambda name: seconds(n, name)))


def open_model(bundle: Bundle, device: str, threads: int, variant: str) -> OnnxModel:
    """Open a variant; on a CPU its serving graph, if there is one.

    Raises UserError if its weights are damaged.
    """
    bundle.check(variant)
    graphs = bundle.serving if device == "cpu" else {}
    path = graphs.get(variant, bundle.variants[variant])
    with in_large_pages():
        inference = open_inference(path, device, threads)
    return OnnxModel(bundle, inference, threads, variant)


def device_line(model: "OnnxModel | OnnxTranslator") -> str:
    """Return a line that says which model file runs on which device."""
    device = "CUDA" if model.provider == "CUDAExecutionProvider" else "CPU"
    threads = "1 thread" if model.threads == 1 else f"{model.threads} threads"
    return (
        f"{model.bundle.facts.parameters:,} parameters on {device} ({model.provider}, "
        f"{threads}) · ONNX Runtime {ort.__version__} · {model.file_name}"
    )


def cache_bytes(config: ModelConfig) -> int:
    """Return the most bytes of the keys and values of a model's conversations."""
    one = slot_bytes(config)
    return one * min(max(CACHE_BYTES // one, 1), MAX_SLOTS)


def slot_bytes(config: ModelConfig) -> int:
    """Return the bytes of the keys and values, in fp32, of one conversation that is full."""
    return 8 * config.n_layer * config.n_kv_head * config.head_dim * config.block_size


def check_graph(bundle: Bundle, inference: ort.InferenceSession) -> None:
    """Raise UserError if the graph's cache does not have the configuration's shape."""
    config = bundle.config
    caches = cache_shapes(inference).values()
    shapes = {(shape[1], shape[3]) for shape in caches}
    if len(caches) != 2 * config.n_layer or shapes != {(config.n_kv_head, config.head_dim)}:
        raise UserError(
            f"the graph in {bundle.path} and its gptcore.json are of different exports: "
            "export the model again"
        )


def step_seconds(model: OnnxModel) -> float:
    """Return the median time of a decoding step after a short prompt, in seconds."""
    session, block_size = model.session(), model.config.block_size
    n_prompt = min(32, block_size // 2)
    session.prefill([0] * n_prompt)
    return median_seconds(lambda: session.step(0), block_size - n_prompt)
