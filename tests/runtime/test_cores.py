"""Threads: how many, how they wait, and what is said where other programs use the cores."""

import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import NANO, ROOT, TINY
from onnxruntime import InferenceSession

import gptcore.model
from gptcore.checks import UserError
from gptcore.engine import onnx_session
from gptcore.model import OnnxModel
from gptcore.system import cores
from gptcore.system.cores import (
    busy_line,
    choose_waiting_policy,
    fastest,
    median_seconds,
    say_if_busy,
    thread_counts,
)
from gptcore.translation import onnx as onnx_translator
from gptcore.translation.onnx import OnnxTranslator, load_translator

# Runs a program, and tells in the end the policy that torch meets.
START = """
import os, runpy, sys

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder)
try:
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)
finally:
    print(os.environ.get("OMP_WAIT_POLICY"))
"""


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """Two programs on every core, which compute and do not sleep."""
    program = "print('begins', flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", program]
    spinning = [
        subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2 * (os.cpu_count() or 1))
    ]
    for process in spinning:
        process.stdout.readline()
    yield
    for process in spinning:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("quota", "n"), [("150000 100000\n", 2), ("900000 100000\n", 4), ("max 100000\n", 4), (None, 4)]
)
def test_a_containers_quota_bounds_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, n: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(cores, "CONTAINER", tmp_path / "cpu.max")
    if quota:
        (tmp_path / "cpu.max").write_text(quota)
    assert cores.n_cores() == n


@pytest.mark.parametrize(("n_cores", "fastest"), [(4, 1), (4, 4), (1, 1)])
def test_a_translator_gets_as_many_threads_as_were_measured_to_be_fastest(
    monkeypatch: pytest.MonkeyPatch, n_cores: int, fastest: int
) -> None:
    tried = []

    def seconds(model: OnnxTranslator) -> float:
        tried.append(model.threads)
        return 1.0 if model.threads == fastest else 2.0

    monkeypatch.setattr(cores, "n_cores", lambda: n_cores)
    monkeypatch.setattr(onnx_translator, "step_seconds", seconds)
    assert load_translator(TINY / "translator", device="cpu").threads == fastest
    assert set(tried) == ({1, 4} if n_cores == 4 else set()), "of one there is nothing to choose"


def test_a_translators_number_of_threads_that_is_given_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(onnx_translator, "step_seconds")
    assert load_translator(TINY / "translator", threads=2, device="cpu").threads == 2


@pytest.mark.parametrize(("on_gpu", "place"), [(9.0, ("cpu", 1)), (0.5, ("cuda", 4))])
@pytest.mark.parametrize("threads", [None, 3])
def test_a_translator_takes_a_gpu_where_it_is_faster_or_asked_for(
    monkeypatch: pytest.MonkeyPatch, threads: int | None, on_gpu: float, place: tuple[str, int]
) -> None:
    """Here is none: what would be opened on it is opened on the CPU."""
    places = {}

    def open_inference(path: Path, device: str, threads: int) -> InferenceSession:
        session = onnx_session.open_inference(path, "cpu", 1)
        places[id(session)] = device, threads
        return session

    def seconds(model: OnnxTranslator) -> float:
        device, n = places[id(model.decoder)]
        return on_gpu if device == "cuda" else float(n)

    monkeypatch.setattr(cores, "n_cores", lambda: 4)
    monkeypatch.setattr(onnx_translator, "n_cores", lambda: 4)
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: True)
    monkeypatch.setattr(onnx_translator, "open_inference", open_inference)
    monkeypatch.setattr(onnx_translator, "step_seconds", seconds)
    model = load_translator(TINY / "translator", threads=threads)
    device, n = place
    if threads:
        device, n = ("cuda" if on_gpu < threads else "cpu"), threads
    assert places[id(model.decoder)] == (device, n) and model.threads == n
    with pytest.raises(UserError, match="CUDA's libraries are missing"):  # it runs on the CPU
        load_translator(TINY / "translator", threads=2, device="cuda")
    assert ("cuda", 2) in places.values()


def test_a_large_file_is_not_opened_to_be_timed_beside_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def seconds(model: OnnxModel) -> float:
        tried.append(model.variant)
        return 1.0

    monkeypatch.setattr(gptcore.model, "step_seconds", seconds)
    gptcore.model.load_model(NANO, threads=1, device="cpu")
    assert {*tried} == {"fp32", "q8", "q4"}
    tried.clear()
    monkeypatch.setattr(gptcore.model, "LARGE_BYTES", 0)  # fp32 is more than three times q4
    gptcore.model.load_model(NANO, threads=1, device="cpu")
    assert {*tried} == {"q8", "q4"}


def test_a_real_measurement_chooses_too() -> None:
    assert load_translator(TINY / "translator", device="cpu").threads in thread_counts()


@pytest.mark.parametrize(("most", "n_taken"), [(6, 6), (100, 8)])
def test_the_first_half_of_the_steps_is_not_counted_and_no_more_are_taken_than_allowed(
    monkeypatch: pytest.MonkeyPatch, most: int, n_taken: int
) -> None:
    now, taken = [0.0], []

    def step() -> None:
        taken.append(None)
        now[0] += 50.0 if len(taken) <= 3 else 1.0

    monkeypatch.setattr(cores.time, "perf_counter", lambda: now[0])
    assert median_seconds(step, most) == 1.0
    assert len(taken) == n_taken


@pytest.mark.slow  # whatever runs beside it
@pytest.mark.parametrize("program", ["training", "export"])
@pytest.mark.parametrize(("own", "met"), [(None, "passive"), ("active", "active")])
def test_on_busy_cores_waiting_threads_sleep_unless_the_user_says_otherwise(
    busy_cores: None, program: str, own: str | None, met: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": own} if own else {}
    command = [sys.executable, "-c", START, program, "--help"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (result.stdout.split()[-1], result.stderr) == (met, "")


@pytest.mark.parametrize(
    ("share", "policy", "spins"), [(0.96, None, cores.SPINS), (0.5, "passive", None)]
)
def test_threads_sleep_where_the_cores_are_busy_and_else_spin_for_a_while(
    monkeypatch: pytest.MonkeyPatch, share: float, policy: str | None, spins: str | None
) -> None:
    monkeypatch.setattr(cores, "share_of_cores", lambda: share)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "to be removed in the end")
        monkeypatch.delenv(name)
    choose_waiting_policy()
    assert os.environ.get("OMP_WAIT_POLICY") == policy
    assert os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize(("times", "chosen"), [((1.0, 0.95), 0), ((1.0, 0.8), 1), ((1.0, 2.0), 0)])
def test_a_candidate_must_be_clearly_faster_than_the_first(
    times: tuple[float, float], chosen: int
) -> None:
    assert fastest([0, 1], lambda i: times[i]) == chosen


def test_one_candidate_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may fill what --memory leaves."""
    alive: weakref.WeakSet[OnnxModel] = weakref.WeakSet()

    def open_one(*way) -> OnnxModel:
        assert not alive
        alive.add(opened := open_model(*way))
        return opened

    open_model = gptcore.model.open_model
    monkeypatch.setattr(gptcore.model, "open_model", open_one)
    opened = gptcore.model.load_model(NANO, device="cpu")
    assert [*alive] == [opened]


@pytest.mark.slow
def test_a_busy_machine_is_told_in_one_line(busy_cores: None, capsys) -> None:
    say_if_busy()
    said = capsys.readouterr().out
    assert said.startswith("the cores are busy: ") and said.count("\n") == 1


def test_of_idle_cores_nothing_is_said() -> None:
    assert busy_line(0.97) is None
    assert busy_line(0.5) == (
        "the cores are busy: this program gets only 50% of their time and runs slower"
    )
