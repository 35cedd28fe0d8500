"""TensorBoard events, read back by TensorBoard's own reader."""

import sys
from pathlib import Path

import pytest
from conftest import Refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PageAccumulator,  # of the page: it drops repeated texts too
)

from gptcore.config import PRESETS
from training.__main__ import main
from training.machine.processes import World
from training.report.records import Records
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData


def records(path: Path, resumed_at: int | None = None) -> Records:
    training = TrainConfig(tensorboard=True)
    run = Run(PRESETS["tiny"], training, RunData("-", False, 1), path=path)
    run.write_config()
    return Records(run, World(), resumed_at)


def read(run: Path) -> EventAccumulator:
    return EventAccumulator(str(run / "tensorboard")).Reload()


def test_figures_and_samples_are_read_back_before_the_end(tmp_path: Path) -> None:
    kept = records(tmp_path)
    kept.figures(10, {"loss": 3.5, "rate": 0.25})
    assert [e.step for e in read(tmp_path).Scalars("loss")] == [10]
    kept.evaluation(20, {"loss": 2.5}, [("Who?", " <b>\nme")])
    read_back = read(tmp_path)
    assert [(e.step, e.value) for e in read_back.Scalars("loss")] == [(10, 3.5), (20, 2.5)]
    assert [(e.step, e.value) for e in read_back.Scalars("rate")] == [(10, 0.25)]
    (text,) = read_back.Tensors("samples/text_summary")
    assert text.step == 20
    assert text.tensor_proto.string_val == [b"    Who? <b>\n    me"]
    kept.close()


def test_steps_that_are_done_again_appear_once(tmp_path: Path) -> None:
    killed = records(tmp_path)
    for step in (10, 20, 30):
        killed.evaluation(step, {"loss": 1.0}, [("a", "b")])
    resumed = records(tmp_path, resumed_at=20)
    for step in (30, 40):
        resumed.evaluation(step, {"loss": 2.0}, [("a", "c")])
    resumed.close()
    losses = [(e.step, e.value) for e in read(tmp_path).Scalars("loss")]
    assert losses == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0)]
    texts = PageAccumulator(str(tmp_path / "tensorboard")).Reload().Tensors("samples/text_summary")
    assert [e.step for e in texts] == [10, 20, 30, 40]
    killed.close()


def test_without_the_package_a_training_leaves_no_files(
    chats: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    command = [chats, "--preset", "tiny", "--set", "steps=1", "--set", "tensorboard=true"]
    assert "pip install tensorboard" in refused(main, *command, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
