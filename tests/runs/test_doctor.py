"""The doctor names what is damaged, and what can be resumed."""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import TINY, Refused
from safetensors.torch import load_file, save_file

from gptcore.checks import UserError
from gptcore.nn.checkpoint import MODEL
from gptcore.system.files import file_sha256, list_checkpoints, read_sealed, sealed, write_json
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.commands.doctor import examine_all
from training.data.pairs.sentences import TRAINING
from training.run.directory import Run, say_next


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Run:
    """A run that can go on: its last checkpoint is there, its summary is not."""
    path = shutil.copytree(run.path, tmp_path / "my copy")
    (path / "summary.json").unlink()
    return Run.load(path)


def test_a_sound_run_is_said_to_be_sound(copy: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(copy.path)]) == 0
    said = capsys.readouterr().out
    newest = list_checkpoints(copy.checkpoints)[0]
    assert "DAMAGED" not in said and f"ok       checkpoints/{newest.name}" in said
    step = newest.name.removeprefix("step-")
    command = said.partition(f"step {step} can be resumed: ")[2]
    assert shlex.split(command) == ["python", "-m", "training", "--out", str(copy.path), "--resume"]


def test_a_folder_with_a_space_in_its_name_is_one_word_of_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for summary in (None, {"steps": 1}):
        say_next(Path("runs/my book"), "python -m training", summary)
    paused, done = capsys.readouterr().out.splitlines()
    assert shlex.split(paused)[-3:] == ["--out", "runs/my book", "--resume"]
    assert shlex.split(done)[-3:] == ["runs/my book", "--out", "models/my book"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    say_next(Path(), "", {"steps": 1})
    assert shlex.split(capsys.readouterr().out)[-3:] == [".", "--out", "models/here"]


def test_a_complete_run_is_said_to_be_complete(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(run.path)]) == 0
    assert "the run is complete, at step 40" in capsys.readouterr().out


def test_a_complete_run_without_its_tokenizer_cannot_be_exported(
    run: Run, tmp_path: Path, refused: Refused
) -> None:
    path = shutil.copytree(run.path, tmp_path / "copy")
    (path / "tokenizer" / "tokenizer.tiktoken").write_bytes(b"no ranks")
    said = refused(main, "doctor", path)
    assert "is complete, at step 40, but it cannot be exported before these parts are sound" in said


def test_damage_is_named_and_the_step_before_it_offered(copy: Run, refused: Callable) -> None:
    newest, before = list_checkpoints(copy.checkpoints)[:2]
    (newest / MODEL).write_bytes((newest / MODEL).read_bytes()[:-7])
    (copy.checkpoints / ".step-99.tmp").mkdir()
    said = refused(main, "doctor", copy.path)
    assert said.startswith("error: 1 of ") and "is damaged; step" in said
    assert f"step {before.name.removeprefix('step-')} can be resumed" in said


@pytest.mark.slow
def test_a_complete_run_whose_end_is_damaged_can_go_on(run: Run, tmp_path, refused) -> None:
    path = shutil.copytree(run.path, tmp_path / "complete")
    newest, before = list_checkpoints(path / "checkpoints")[:2]
    weights = (newest / MODEL).read_bytes()
    (newest / MODEL).write_bytes(weights[:-7])
    said = refused(main, "doctor", path)
    assert f"step {before.name.removeprefix('step-')} can be resumed" in said
    assert main(["--out", str(path), "--resume"]) == 0
    assert (newest / MODEL).read_bytes() == weights
    assert "is complete already" in refused(main, "--out", path, "--resume")


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "tokenizer/tokenizer.json"])
def test_every_other_file_is_looked_at(copy: Run, refused: Callable, name: str) -> None:
    path = copy.path / name
    path = path if path.exists() else sorted((copy.path / "tokenizer").iterdir())[0]
    path.write_bytes(b"\x00" * 100)
    said = refused(main, "doctor", copy.path)
    assert "damaged" in said


def test_weights_that_are_no_numbers_are_a_damage_though_every_hash_is_right(
    copy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = list_checkpoints(copy.checkpoints)[0]
    weights = load_file(newest / MODEL)
    weights["norm.weight"][3] = torch.inf
    save_file(weights, newest / MODEL)
    manifest = read_sealed(newest / "manifest.json")
    manifest["sha256"][MODEL] = file_sha256(newest / MODEL)
    (newest / "manifest.json").write_text(sealed(manifest))
    assert main(["doctor", str(copy.path)]) == 2
    assert "norm.weight holds numbers that are not finite" in capsys.readouterr().out


def test_another_tokenizer_than_the_shards_is_a_damage(
    copy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    Tokenizer({bytes([byte]): byte for byte in range(256)}).save(copy.path / "tokenizer")
    assert main(["doctor", str(copy.path)]) == 2
    told = capsys.readouterr()
    assert "is not the tokenizer of the token shards" in told.out
    assert "nothing can be resumed before they are sound: token shards" in told.err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, refused: Callable) -> None:
    assert "no training run at" in refused(main, "doctor", tmp_path)


def test_metrics_that_are_gone_are_a_damage(copy: Run, refused: Callable) -> None:
    (copy.path / "metrics.jsonl").unlink()
    assert refused(main, "doctor", copy.path).startswith("error: 1 of ")


def test_a_damaged_summary_is_a_damage_and_the_run_goes_on(copy: Run, refused: Callable) -> None:
    (copy.path / "summary.json").write_text('{"steps": ')
    said = refused(main, "doctor", copy.path)
    assert said.startswith("error: 1 of ") and "step 40 can be resumed: " in said


def test_a_young_run_and_a_line_that_a_kill_cut_are_no_damage(copy: Run) -> None:
    path = copy.path / "metrics.jsonl"
    path.write_text(path.read_text()[:-9])
    assert main(["doctor", str(copy.path)]) == 0
    path.unlink()
    replace(copy, train=replace(copy.train, log_every=40)).write_config()
    assert main(["doctor", str(copy.path)]) == 0, "nothing was to be written yet"


def test_a_damaged_shard_is_a_damage(copy: Run, tmp_path: Path, capsys) -> None:
    shards = shutil.copytree(copy.data.shards, tmp_path / "shards")
    moved = replace(copy, data=replace(copy.data, shards=str(shards)))
    assert examine_all(moved) == 0
    data = bytearray((shards / "train-00000.bin").read_bytes())
    data[7] ^= 1
    (shards / "train-00000.bin").write_bytes(data)
    with pytest.raises(UserError, match="nothing can be resumed before they are sound: token sh"):
        examine_all(moved)
    assert "DAMAGED" in capsys.readouterr().out
    shutil.rmtree(shards)
    with pytest.raises(UserError, match="1 of "):  # to resume, they are needed
        examine_all(moved)
    assert f"{shards} are missing" in capsys.readouterr().out
    write_json(moved.path / "summary.json", {"steps": moved.train.steps})
    assert examine_all(moved) == 0, "a complete run may do without"
    away = replace(moved, data=replace(moved.data, shards="http://127.0.0.1:1/shards"))
    assert examine_all(away) == 0, "and nothing is fetched for it"


@pytest.mark.slow
def test_a_translators_pairs_are_looked_at(translation_run: Run, tmp_path: Path, refused) -> None:
    path = shutil.copytree(translation_run.path, tmp_path / "copy")
    assert main(["doctor", str(path)]) == 0
    (path / TRAINING).write_bytes(b"no pair\n")
    assert refused(main, "doctor", path).startswith("error: 1 of ")


def test_a_complete_run_whose_shards_are_gone_is_complete(tmp_path: Path, refused: Refused) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")  # the page deletes what it made of texts
    assert "is complete already" in refused(main, "--out", run, "--resume")


@pytest.mark.parametrize("command", ["doctor", "report", "evaluate"])
def test_a_folder_of_hugging_face_is_told_to_be_imported(
    command: str, tmp_path: Path, refused: Refused
) -> None:
    """It was called damaged."""
    write_json(tmp_path / "config.json", {"model_type": "llama"})
    said = refused(main, command, tmp_path)
    assert "is in Hugging Face's format" in said and "--from-hf" in said
