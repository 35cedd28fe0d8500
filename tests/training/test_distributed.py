"""Several processes, started by the real torchrun: the same losses, and checkpoints that any
number of processes can go on from."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from trained import RECIPE_MODEL, newest_checkpoint, quick_words

from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.nn import build_model, count_parameters
from training.__main__ import main
from training.datasets.registry import DATASETS
from training.machine.processes import World, join
from training.run.directory import Run

STEPS, HALF = 10, 5
SETTINGS = {
    "batch_size": 6,
    "warmup_steps": 2,
    "learning_rate": 0.02,
    "save_every": HALF,
    "eval_every": STEPS,
    "steps": STEPS,
}


def words(chats: Path, out: Path, **changed: object) -> list[str]:
    return quick_words(chats, out, **SETTINGS | changed)


def torchrun(*words: str, processes: int = 2) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [sys.executable, *launcher, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def alone(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one process, with checkpoints half way and at the end."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert main(words(chats, out)) == 0
    return Run.load(out)


def half_way(run: Run, path: Path) -> Run:
    """A copy of a run as it was half way."""
    shutil.copytree(run.path, path)
    (path / "summary.json").unlink()
    shutil.rmtree(path / "checkpoints" / f"step-{STEPS}")
    return Run.load(path)


def losses(run: Run) -> list[float]:
    lines = run.metrics()
    return [m["loss"] for m in lines if "loss" in m] + [
        m["val_loss"] for m in lines if "val_loss" in m
    ]


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_and_one_goes_on_where_they_were(
    alone: Run, chats: Path, tmp_path: Path
) -> None:
    said = torchrun("-m", "training", *words(chats, tmp_path / "two"))
    assert said.count("done; next: python -m export") == 1 and "2 x cpu" in said
    two = Run.load(tmp_path / "two")
    assert losses(two) == pytest.approx(losses(alone), abs=1e-5)
    resumed = half_way(two, tmp_path / "resumed")
    assert main(["--out", str(resumed.path), "--resume"]) == 0
    assert len(losses(resumed)) == len(losses(alone))
    assert losses(resumed) == pytest.approx(losses(alone), abs=1e-5)


@pytest.mark.slow
def test_a_split_model_goes_on_where_one_process_was(alone: Run, tmp_path: Path) -> None:
    run = half_way(alone, tmp_path / "split")
    replace(run, train=replace(run.train, parallel="fsdp")).write_config()
    torchrun("-m", "training", "--out", str(run.path), "--resume")
    assert losses(run) == pytest.approx(losses(alone), abs=1e-5)
    ours, theirs = (newest_checkpoint(r.checkpoints)[0] for r in (alone, run))
    assert theirs.facts["step"] == STEPS
    for part in ("model", "state"):
        shapes = [{k: t.shape for k, t in getattr(c, part).items()} for c in (ours, theirs)]
        assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_one_process_splits_a_model_too_and_has_the_same_losses(
    alone: Run, chats: Path, tmp_path: Path
) -> None:
    """So one GPU shows whether a split model trains."""
    split = words(chats, tmp_path / "split", parallel="fsdp")
    torchrun("-m", "training", *split, processes=1)
    assert losses(Run.load(tmp_path / "split")) == pytest.approx(losses(alone), abs=1e-5)


FINDING = """
import json, sys
from pathlib import Path
import torch
from gptcore.config import PRESETS
from training.machine import devices
from training.machine.processes import join
from training.plan import given, pilot
from training.run.config import TrainConfig

parts = []
def step(state, *others, step=pilot.step):
    parts.append(sum(p.to_local().numel() for p in state.model.parameters()))
    return step(state, *others)

pilot.step = step
with join(300) as world:
    devices.multiplies_bfloat16_fast = lambda: world.rank == 1  # each would find something else
    dtype = devices.pick_dtype("auto", torch.device("cpu"), world)
    given.room = lambda device, held: 1e12 * world.rank
    settings = TrainConfig(batch_size=8, micro_batch_size=8)
    n_rows = given.in_memory(settings, PRESETS["tiny"], world).micro_batch_size
    training = TrainConfig(dtype="float32", parallel="fsdp")
    pilot.Speed().measure(2, PRESETS["tiny"], training, 0.0, world)
    found = {"chosen": f"{dtype}, {n_rows} rows at a time", "parameters": parts[0]}
    Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes finds before a training."""
    folder = tmp_path_factory.mktemp("finding")
    (folder / "finding.py").write_text(FINDING)
    torchrun(str(folder / "finding.py"), str(folder))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.slow
def test_all_processes_take_the_precision_and_micro_batch_that_the_first_one_found(
    found: list[dict[str, Any]],
) -> None:
    assert [each["chosen"] for each in found] == ["torch.float32, 1 rows at a time"] * 2


@pytest.mark.slow
def test_a_plan_for_a_split_model_splits_it_too(found: list[dict[str, Any]]) -> None:
    parts = [each["parameters"] for each in found]
    assert sum(parts) == count_parameters(build_model(PRESETS["tiny"]))
    assert max(parts) < 0.6 * sum(parts)


STOPPED = """
import os, signal, sys
from training.__main__ import main
from training.tasks.language import LanguageModelling

def evaluate(task, model, evaluate=LanguageModelling.evaluate):
    if os.environ["RANK"] == "1":
        signal.raise_signal(signal.SIGINT)
    return evaluate(task, model)

LanguageModelling.evaluate = evaluate
ended = main(sys.argv[1:])
assert ended == 130, ended  # what a shell says of Ctrl-C
"""


@pytest.mark.slow
def test_processes_of_which_one_is_stopped_while_it_measures_all_stop_after_the_next_step(
    chats: Path, tmp_path: Path
) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED)
    command = words(chats, tmp_path / "run", eval_every=2)
    assert "saved step 3" in torchrun(str(tmp_path / "stopped.py"), *command)
    assert list(Run.load(tmp_path / "run").evaluations()) == [2]


SLOW_TO_WRITE = """
import sys, time
import training.jobs.keeping, training.loop
from training.__main__ import main

for module in (training.loop, training.jobs.keeping):
    def write(path, value, write=module.write_json):
        time.sleep(1)  # while which the other process must not go on
        write(path, value)
    module.write_json = write
sys.exit(main(sys.argv[1:]))
"""
RECIPE = (
    RECIPE_MODEL
    + """\
[train]
batch_size = 16
micro_batch_size = 16
dtype = "float32"
[[stages]]
name = "first"
mix = {rasbt-instruct = 1}
[[stages]]
name = "kept"
mix = {rasbt-instruct = 1}
train = {keep = 0.75}
"""
)


@pytest.mark.slow
def test_a_stage_waits_for_all_that_the_one_before_it_writes(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_TO_WRITE)
    (tmp_path / "two.toml").write_text(RECIPE)
    rows = [{"instruction": f"Say {n}.", "input": "", "output": "A number."} for n in range(40)]
    [origin] = DATASETS["rasbt-instruct"].origins
    (tmp_path / origin.file_name).write_text(json.dumps(rows))
    recipe = ["recipe", str(tmp_path / "two.toml"), "--data-dir", str(tmp_path)]
    torchrun(str(tmp_path / "slow.py"), *recipe, "--out", str(tmp_path / "runs"))
    run = Run.load(tmp_path / "runs" / "kept")
    assert run.summary()["kept"] == run.best_checkpoint().facts["kept"] == 0.75


def test_without_torchrun_there_is_one_process() -> None:
    with join(60) as world:
        assert world == World() and world.is_first
        assert world.sum(1.5, 2.0) == [1.5, 2.0] and world.any(True) and not world.any(False)
        assert world.in_turns(lambda: "made") == "made"


def test_parts_of_a_batch_are_all_of_it() -> None:
    batch = list(range(11))
    for size in (1, 2, 4):
        parts = [World(rank, size).part(batch) for rank in range(size)]
        assert sorted(i for part in parts for i in part) == batch


def test_a_lost_process_is_an_error_that_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "9",  # nobody is there
    }.items():
        monkeypatch.setenv(name, value)
    words = r"process 1 of 2: another process ended .* --resume continues"
    with pytest.raises(UserError, match=words), join(0.2):
        raise AssertionError("it met somebody")
