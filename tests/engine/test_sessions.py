"""Sessions over ONNX Runtime: the same tokens as PyTorch, and nothing is computed twice."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from conftest import NANO
from trained import open_graph

import gptcore.model
from benchmarks.serving.decode import UncachedTorchSession
from export.verify.decoder import load_reference
from gptcore.bundle import VARIANTS, Bundle
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.engine import onnx_session
from gptcore.engine.generate import Reply, Request, Session
from gptcore.engine.onnx_session import OnnxSession
from gptcore.engine.replies import MAX_REPLIES, Replies
from gptcore.model import MAX_SLOTS, OnnxModel, cache_bytes, load_model, step_seconds
from gptcore.nn.gpt import GPT
from gptcore.nn.torch_session import TorchSession
from gptcore.system import cores
from gptcore.text.tokenizer import Tokenizer

HUGE = {"n_layer": 80, "block_size": 2**17}
PROMPTS = [[3], [506, 509, 40, 41, 42, 511, 510], list(range(100, 160))]


@pytest.fixture(scope="module")
def portable(model: OnnxModel) -> OnnxModel:
    """The tiny model with the graph that every folder has."""
    return open_graph(model.bundle, "portable")


@pytest.fixture(params=["serving", "portable"])
def either(model: OnnxModel, portable: OnnxModel, request: pytest.FixtureRequest) -> OnnxModel:
    """The tiny model with each of its graphs."""
    assert "fp32" in model.bundle.serving
    return model if request.param == "serving" else portable


@pytest.fixture
def session(either: OnnxModel) -> OnnxSession:
    return either.session()


def ids_read(session: OnnxSession) -> list[int]:
    return session.slots.ids[0, : session.slots.lengths[0]].tolist()


@pytest.fixture(scope="module")
def reference(model: OnnxModel) -> GPT:
    """The same weights in PyTorch."""
    return load_reference(model.bundle)


def greedy(session: Session, prompt: list[int], n: int) -> tuple[list[int], np.ndarray]:
    """n tokens, each the likeliest that has not come yet, and the logits (n, V) before them."""
    tokens, logits = [], [session.prefill(prompt)]
    while True:
        tokens.append(next(int(i) for i in np.argsort(-logits[-1]) if i not in tokens))
        if len(tokens) == n:
            return tokens, np.stack(logits)
        logits.append(session.step(tokens[-1]))


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_greedy_tokens_equal_those_of_pytorch_with_and_without_cache(
    session: OnnxSession, reference: GPT, prompt: list[int]
) -> None:
    tokens, logits = greedy(session, prompt, 40)
    for torch_session in (TorchSession(reference), UncachedTorchSession(reference)):
        expected_tokens, expected_logits = greedy(torch_session, prompt, 40)
        assert tokens == expected_tokens
        assert np.abs(logits - expected_logits).max() < 1e-4


def test_the_path_of_a_gpu_gives_the_same_on_the_cpu(
    portable: OnnxModel,
) -> None:
    """The cache stays in ONNX Runtime's own values there; all of it works on the CPU too."""
    session, bound = portable.session(), portable.session()
    cache = bound.slots.cache
    cache.run_numpy = cache.run_bound  # type: ignore[method-assign]
    for prompt in [*PROMPTS, PROMPTS[1][:4], [*PROMPTS[1][:4], 9, 9]]:
        tokens, logits = greedy(bound, prompt, 20)
        assert isinstance(cache.caches[0][0], ort.OrtValue)
        expected_tokens, expected_logits = greedy(session, prompt, 20)
        assert tokens == expected_tokens and np.array_equal(logits, expected_logits)
    assert bound.slots.n_read == session.slots.n_read
    assert ids_read(bound) == ids_read(session)


@pytest.mark.parametrize("graph", ["serving", "portable"])
def test_a_model_that_nobody_needs_leaves_the_memory_at_once(model: OnnxModel, graph: str) -> None:
    gc.disable()  # a circle of references would wait for it, with all weights
    try:
        opened = open_graph(model.bundle, graph)
        opened.session().prefill([1, 2, 3])
        weights = weakref.ref(opened.inference)
        del opened
        assert weights() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("second", "n_new"),
    [
        ([1, 2, 3, 4, 5, 6], 1),
        ([1, 2, 3, 4, 5, 6, 7], 1),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], 3),
        ([1, 2, 3, 9, 5, 6, 7], 4),
        ([1, 2, 3, 4, 5, 9], 1),
        ([1, 2, 3], 1),
        ([1], 1),
        ([9, 2, 3, 4, 5, 6], 6),
        ([9], 1),
    ],
    ids=str,
)
def test_a_prompt_is_read_from_where_it_differs_and_gives_the_same_logits(
    either: OnnxModel, session: OnnxSession, second: list[int], n_new: int
) -> None:
    session.prefill([1, 2, 3, 4])
    session.step(5)
    session.step(6)
    assert session.slots.n_read == 6
    logits = session.prefill(second)
    assert session.slots.n_read == 6 + n_new
    assert ids_read(session) == second
    expected = either.session().prefill(second)
    assert np.abs(logits - expected).max() < 1e-5


def test_the_context_is_never_exceeded(session: OnnxSession) -> None:
    with pytest.raises(UserError, match="257 tokens do not fit into the context 256"):
        session.prefill([1] * 257)
    session.prefill([1] * 255)
    session.step(2)
    with pytest.raises(UserError, match="257 tokens"):
        session.step(3)
    assert len(ids_read(session)) == session.slots.n_read == 256


def test_an_error_of_the_runtime_leaves_a_session_that_works(session: OnnxSession) -> None:
    expected = session.prefill([1, 2, 3])
    with pytest.raises(Exception, match="out of data bounds"):
        session.prefill([1, 2, 10**6])
    assert np.abs(session.prefill([1, 2, 3]) - expected).max() < 1e-5


def test_logits_stay_what_they_were_while_the_session_goes_on(session: OnnxSession) -> None:
    first = session.prefill([1, 2, 3])
    second = session.step(4)
    before = first.copy(), second.copy()
    session.step(5)
    session.prefill([1, 2, 9])
    assert np.array_equal(first, before[0]) and np.array_equal(second, before[1])


def test_replies_are_recalled_by_what_came_before_them_and_the_oldest_are_forgotten() -> None:
    replies, letters = Replies(), Tokenizer({bytes([byte]): byte for byte in range(256)})
    recall = replies.recall

    def remember(before: list[int]) -> None:
        reply = Reply(Request(before, is_turn=True), letters, block_size=100)
        for token_id in b"Hi":
            reply.add(token_id, np.zeros(letters.vocab_size, np.float32))
        replies.remember(reply)

    remember([1, 2])
    assert recall([1, 2], "Hi") == [*b"Hi"]
    assert recall([1, 3], "Hi") is None and recall([1, 2], "Ho") is None
    for i in range(MAX_REPLIES - 1):
        remember([i])
    assert recall([1, 2], "Hi") == [*b"Hi"]
    remember([-1])  # what was recalled last is kept longest
    assert recall([0], "Hi") is None and recall([1, 2], "Hi") == [*b"Hi"]


def test_a_model_folder_is_loaded_with_the_threads_asked_for_or_the_quicker_number(
    model_folder: Path,
) -> None:
    model = load_model(model_folder, threads=2, device="cpu")
    assert model.threads == model.inference.get_session_options().intra_op_num_threads == 2
    chosen = load_model(str(model_folder), device="cpu")
    assert chosen.threads >= 1 and chosen.provider == "CPUExecutionProvider"
    assert np.isfinite(chosen.session().prefill([1, 2, 3])).all()


@pytest.mark.parametrize(
    "change", [{"n_layer": 3}, {"n_layer": 1}, {"n_kv_head": 4}, {"n_kv_head": 1}, {"n_head": 8}],
    ids=str,
)  # fmt: skip
def test_a_graph_whose_cache_is_not_the_configurations_is_refused(
    either: OnnxModel, change: dict[str, int]
) -> None:
    bundle = replace(either.bundle, config=replace(either.config, **change))
    with pytest.raises(UserError, match="are of different exports"):
        OnnxModel(bundle, either.inference, threads=1, variant="fp32")


@pytest.mark.parametrize(
    ("variants", "chosen"),
    [
        (["fp32", "int8", "q8", "q4", "fp16"], "fp16"),
        (["fp32", "int8", "q8", "q4"], "fp32"),
        (["int8", "q4", "q8"], "q8"),
        (["int8", "q4"], "q4"),
        (["int8"], "int8"),
    ],
    ids=str,
)
def test_on_a_gpu_the_form_that_suits_it_best_is_taken_on_all_cores(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch, variants: list[str], chosen: str
) -> None:
    """Here is none: what would be opened is noted."""
    opened = []
    files = {VARIANTS[name]: "" for name in variants}
    bundle = replace(model.bundle, facts=replace(model.bundle.facts, sha256=files))
    monkeypatch.setattr(gptcore.model, "load_bundle", lambda *_, **how: bundle)
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: True)

    def open_model(_: Bundle, *how: object) -> SimpleNamespace:
        opened.append(how)
        return SimpleNamespace(provider="CUDAExecutionProvider", bundle=bundle)

    monkeypatch.setattr(gptcore.model, "open_model", open_model)
    monkeypatch.setattr(gptcore.model, "step_seconds", lambda _: 0.0)
    monkeypatch.setattr(gptcore.model, "graph_bytes", lambda _: 1)
    load_model("somewhere")
    load_model("somewhere", threads=3, device="cuda", variant="int8")
    assert opened == [("cuda", cores.n_cores(), chosen), ("cuda", 3, "int8")]


MEGABYTE_ON_A_CPU = 1e-5  # seconds in which it is read


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Seconds of a step by place, in a machine with a GPU, and those of them that were timed."""
    timed: dict[str, float] = {}
    seconds: dict[str, Any] = {"cuda": 1.0, "cpu x 1": 1.0, "cpu x 4": 1.0, "timed": timed}
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: True)
    monkeypatch.setattr(gptcore.model, "thread_counts", lambda: [1, 4])
    monkeypatch.setattr(gptcore.model, "graph_bytes", lambda _: 1_000_000)

    def open_model(bundle: Bundle, device: str, threads: int, variant: str) -> SimpleNamespace:
        place = device if device == "cuda" else f"cpu x {threads}"
        provider = f"{device.upper()}ExecutionProvider"
        return SimpleNamespace(
            place=place, provider=provider, bundle=bundle, threads=threads, variant=variant
        )

    def step_seconds(one: SimpleNamespace) -> float:
        timed[one.place] = seconds[one.place]
        return seconds[one.place]

    monkeypatch.setattr(gptcore.model, "open_model", open_model)
    monkeypatch.setattr(gptcore.model, "step_seconds", step_seconds)
    return seconds


@pytest.mark.parametrize(
    ("cuda", "one", "all_cores", "place"),
    [(3, 1, 3, "cpu x 1"), (1, 2, 3, "cuda"), (2, 3, 1, "cpu x 4"), (2, 3, 2, "cuda")],
)
def test_a_gpu_is_taken_where_it_is_faster_than_one_core_and_all(
    opened: dict[str, Any], cuda: float, one: float, all_cores: float, place: str
) -> None:
    """A step of 6.5M parameters took 1.6 ms on an H200, and 0.5 on one core beside it."""
    opened |= {"cuda": cuda, "cpu x 1": one, "cpu x 4": all_cores}
    assert load_model(NANO).place == place


@pytest.mark.parametrize(
    ("factor", "places"), [(0.99, {"cuda"}), (1.01, {"cuda", "cpu x 1", "cpu x 4"})]
)
def test_what_no_cpu_can_do_as_fast_is_not_tried_on_one(
    opened: dict[str, Any], factor: float, places: set[str]
) -> None:
    opened["cuda"] = factor * MEGABYTE_ON_A_CPU
    assert load_model(NANO).place == "cuda"
    assert set(opened["timed"]) == places


def test_a_device_that_is_asked_for_is_taken_though_it_is_slower(opened: dict[str, Any]) -> None:
    opened |= {"cuda": 9.0}
    assert load_model(NANO, device="cuda").place == "cuda"
    opened |= {"cuda": 1e-9}
    assert load_model(NANO, device="cpu").place == "cpu x 1"


def test_half_precision_that_is_asked_for_is_not_opened_on_a_cpu(
    opened: dict[str, Any], model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some CPUs cannot load it."""
    files = model.bundle.facts.sha256 | {VARIANTS["fp16"]: ""}
    bundle = replace(model.bundle, facts=replace(model.bundle.facts, sha256=files))
    monkeypatch.setattr(gptcore.model, "load_bundle", lambda *_, **how: bundle)
    opened |= {"cuda": 9.0}
    assert load_model("somewhere", variant="fp16").place == "cuda"
    assert not opened["timed"]


def test_a_gpu_whose_libraries_are_missing_leaves_the_cpus_own_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver finds a GPU, and ONNX Runtime takes the CPU after all."""
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: True)
    model = load_model(NANO)
    assert model.provider == "CPUExecutionProvider" and model.variant in model.bundle.serving
    with pytest.raises(UserError, match=r"CUDA's libraries are missing: pip install"):
        load_model(NANO, device="cuda")


@pytest.mark.parametrize(
    ("shape", "n_slots"), [({}, MAX_SLOTS), ({"n_layer": 24, "block_size": 1024}, 10), (HUGE, 1)]
)
def test_the_conversations_that_are_kept_take_a_gigabyte_at_the_most_but_one_is(
    shape: dict[str, int], n_slots: int
) -> None:
    config = ModelConfig(
        **{"n_layer": 2, "n_embd": 512, "n_head": 8, "n_kv_head": 8, "block_size": 64} | shape
    )
    one = 2 * 4 * config.n_layer * 512 * config.block_size  # keys and values of 4 bytes
    assert cache_bytes(config) == n_slots * one
    assert n_slots * one <= 2**30 or n_slots == 1


@pytest.mark.parametrize(
    ("durations", "n_steps", "median"),
    [
        ([9, 9, 9, 9, 1, 2, 3, 4], 8, 2.5),
        ([2**-8] * 8 + [2**-9] * 15, 23, 2**-9),
        ([0.0] * 224, 224, 0.0),
    ],
    ids=["slow", "quick", "as quick as can be"],
)  # fmt: skip
def test_a_decoding_step_is_timed_for_long_enough_and_when_it_has_become_quick(
    model: OnnxModel,
    monkeypatch: pytest.MonkeyPatch,
    durations: list[float],
    n_steps: int,
    median: float,
) -> None:
    """Eight steps or 60 ms at least, the later half of which counts; never past the context."""
    sessions, now, left = [], [0.0], iter(durations)

    class Watched(OnnxSession):
        def __init__(self, inference: ort.InferenceSession, config: ModelConfig):
            super().__init__(inference, config)
            sessions.append(self)

        def step(self, token_id: int) -> np.ndarray:
            now[0] += next(left)
            return super().step(token_id)

    monkeypatch.setattr(gptcore.model, "OnnxSession", Watched)
    monkeypatch.setattr(cores, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert step_seconds(model) == median
    assert [session.slots.n_read for session in sessions] == [32 + n_steps]


class Driver:
    """CUDA's, as far as it is asked."""

    def __init__(self, init: int, status: int, n_devices: int):
        self.init, self.status, self.n_devices = init, status, n_devices

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuDeviceGetCount(self, count: object) -> int:
        count._obj.value = self.n_devices
        return self.status


@pytest.mark.parametrize(
    ("providers", "driver", "found"),
    [
        (["CUDAExecutionProvider"], Driver(0, 0, 1), True),
        (["CUDAExecutionProvider"], Driver(0, 0, 0), False),
        (["CUDAExecutionProvider"], Driver(0, 100, 1), False),
        (["CUDAExecutionProvider"], Driver(100, 0, 1), False),
        (["CUDAExecutionProvider"], None, False),
        (["CPUExecutionProvider"], Driver(0, 0, 1), False),
    ],
    ids=["a GPU", "no GPU", "no answer", "no start", "no driver", "no CUDA in ONNX Runtime"],
)
@pytest.mark.parametrize("system", ["linux", "win32"])
def test_a_gpu_is_found_where_runtime_driver_and_device_are_there(
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    providers: list[str],
    driver: Driver | None,
    found: bool,
) -> None:
    """Drivers are made up here; benchmarks/gpu.py runs on a real one."""

    def load(name: str) -> Driver:
        if driver is None or name != {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}[system]:
            raise OSError(name)
        return driver

    monkeypatch.setattr(onnx_session, "sys", SimpleNamespace(platform=system))
    monkeypatch.setattr(onnx_session.ort, "get_available_providers", lambda: providers)
    monkeypatch.setattr(onnx_session.ctypes, "CDLL", load)
    assert onnx_session.has_cuda() is found
