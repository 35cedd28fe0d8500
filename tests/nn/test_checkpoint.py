"""Checkpoints are whole or not there: damage is found, crashes leave the old ones."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from trained import newest_checkpoint

import gptcore.nn.checkpoint
from gptcore.checks import UserError
from gptcore.config import PRESETS, ModelConfig
from gptcore.nn import build_model
from gptcore.nn.checkpoint import (
    MANIFEST,
    MODEL,
    STATE,
    load_checkpoint,
    load_weights,
    save_checkpoint,
)
from gptcore.system.files import list_checkpoints

SMALL = replace(PRESETS["tiny"], vocab_size=300, n_layer=1)


def tensors(step: int) -> dict[str, Tensor]:
    """Some tensors of every kind that a training state has."""
    return {
        "matrix": torch.full((30, 40), float(step)),
        "turned": torch.arange(12.0).view(3, 4).T,
        "half": torch.tensor([step, 0.1], dtype=torch.bfloat16),
        "step": torch.tensor(float(step)),
        "rng": torch.arange(256, dtype=torch.uint8),
    }


def save(folder: Path, step: int) -> Path:
    path = folder / f"step-{step}"
    save_checkpoint(path, {"weight": torch.tensor(float(step))}, tensors(step), {"step": step})
    return path


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A folder of three checkpoints."""
    for step in (10, 9, 100):
        save(tmp_path, step)
    return tmp_path


def newest(folder: Path) -> tuple[Path, list[str]]:
    checkpoint, problems = newest_checkpoint(folder)
    return checkpoint.path, problems


def contents(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    _, model, state, facts = load_checkpoint(save(tmp_path, 3))
    assert facts == {"step": 3} and model == {"weight": torch.tensor(3.0)}
    assert set(state) == set(tensors(3))
    for name, expected in tensors(3).items():
        assert state[name].dtype == expected.dtype and torch.equal(state[name], expected)


def test_the_newest_is_the_one_of_the_highest_step(checkpoints: Path) -> None:
    assert [path.name for path in list_checkpoints(checkpoints)] == [
        "step-100",
        "step-10",
        "step-9",
    ]
    assert newest(checkpoints) == (checkpoints / "step-100", [])


@pytest.mark.parametrize("name", [MODEL, STATE, MANIFEST])
@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink])
def test_a_damaged_checkpoint_is_passed_over_and_named(checkpoints: Path, name, damage) -> None:
    damage(checkpoints / "step-100" / name)
    with pytest.raises(UserError, match=r"damaged|incomplete"):
        load_checkpoint(checkpoints / "step-100")
    path, [problem] = newest(checkpoints)
    assert path == checkpoints / "step-10"
    assert "step-100" in problem and name in problem


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"sha256": {}, "facts": {}}', "\xff"])
def test_a_manifest_that_is_something_else_is_damage(checkpoints: Path, text: str) -> None:
    (checkpoints / "step-100" / MANIFEST).write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        load_checkpoint(checkpoints / "step-100")


def test_without_a_sound_checkpoint_the_error_names_each(checkpoints: Path, tmp_path: Path) -> None:
    flip(checkpoints / "step-100" / MODEL)
    truncate(checkpoints / "step-10" / STATE)
    (checkpoints / "step-9" / MANIFEST).unlink()
    with pytest.raises(UserError, match="no sound checkpoint") as refusal:
        newest_checkpoint(checkpoints)
    assert all(f"step-{step}" in str(refusal.value) for step in (9, 10, 100))
    with pytest.raises(UserError, match="there is none"):
        newest_checkpoint(tmp_path / "nothing")


@pytest.mark.parametrize("step", [100, 200])
@pytest.mark.parametrize("n_files", [0, 1])
def test_a_crash_while_saving_leaves_what_was_there(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch, step: int, n_files: int
) -> None:
    before = contents(checkpoints)
    written = []
    save_file = gptcore.nn.checkpoint.save_file

    def failing(values: dict[str, Tensor], path: Path) -> None:
        if len(written) == n_files:
            raise OSError("no space left on device")
        written.append(path)
        save_file(values, path)

    monkeypatch.setattr(gptcore.nn.checkpoint, "save_file", failing)
    with pytest.raises(OSError, match="no space left"):
        save(checkpoints, step)
    assert len(written) == n_files
    assert contents(checkpoints) == before
    assert newest(checkpoints) == (checkpoints / "step-100", [])


def test_what_a_killed_process_left_is_no_checkpoint(checkpoints: Path) -> None:
    left = checkpoints / ".step-200.tmp"
    left.mkdir()
    (left / MODEL).write_bytes(b"half a file")
    assert newest(checkpoints)[0] == checkpoints / "step-100"
    save(checkpoints, 200)
    assert newest(checkpoints)[0] == checkpoints / "step-200"
    assert not left.exists()


def test_saving_again_replaces_a_checkpoint(checkpoints: Path) -> None:
    flip(checkpoints / "step-100" / MODEL)
    save(checkpoints, 100)
    assert load_checkpoint(checkpoints / "step-100").facts == {"step": 100}


def weights_of(config: ModelConfig) -> dict[str, Tensor]:
    return dict(build_model(config).named_parameters())


def test_weights_are_copied_into_a_model_of_the_same_shape(tmp_path: Path) -> None:
    model, other = build_model(SMALL), weights_of(SMALL)
    load_weights(model, other, tmp_path)
    assert all(torch.equal(parameter, other[name]) for name, parameter in model.named_parameters())
    assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("tensors", [{}, {"weight": torch.zeros(3)}])
def test_tensors_of_something_else_are_refused(tensors: dict[str, Tensor]) -> None:
    with pytest.raises(UserError, match="theirs does not belong to this model"):
        load_weights(build_model(SMALL), tensors, Path("theirs"))


@pytest.mark.parametrize(
    "change",
    [{"n_layer": 2}, {"n_embd": 32}, {"vocab_size": 301}, {"tied_embeddings": False}],
    ids=str,
)
def test_weights_of_another_shape_are_refused_in_a_line(change: dict) -> None:
    theirs = weights_of(replace(SMALL, **change))
    with pytest.raises(UserError, match="theirs does not belong to this model") as refusal:
        load_weights(build_model(SMALL), theirs, Path("theirs"))
    assert "\n" not in str(refusal.value)
