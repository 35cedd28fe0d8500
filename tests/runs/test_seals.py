"""Of what is sealed every changed bit is noticed: settings of a run, manifests of its parts."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY

from gptcore.checks import UserError
from gptcore.nn.checkpoint import load_checkpoint
from gptcore.system.files import (
    list_checkpoints,
    read_json,
    read_sealed,
    sealed,
    unseal,
    write_json,
)
from training.__main__ import main
from training.data.shards.folder import Shards, load_shards, prepare
from training.run.config import TrainConfig
from training.run.directory import CONFIG, Run
from training.run.facts import RunData


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.load(shutil.copytree(TINY / "run", tmp_path / "run"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    texts = [f"The {word} is number {i}." for i in range(40) for word in ("cat", "dog")]
    return prepare(lambda: texts, tmp_path_factory.mktemp("shards"), 300)


def test_another_rope_theta_in_a_runs_settings_is_noticed(run: Run, refused: Callable) -> None:
    path = run.path / "config.json"
    path.write_text(path.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 10001.0'))
    with pytest.raises(UserError, match=r"config\.json is damaged or was changed: its seal"):
        Run.load(run.path)
    for words in (["doctor", run.path], ["--out", run.path, "--resume"]):
        assert f"{path} is damaged or was changed" in refused(main, *words)


@pytest.mark.parametrize("kind", ["settings", "checkpoint", "shards"])
def test_every_flipped_bit_is_noticed(run: Run, shards: Shards, kind: str) -> None:
    manifest = "manifest.json"
    [step] = list_checkpoints(run.checkpoints)
    path, read, said = {
        "settings": (run.path / CONFIG, lambda: Run.load(run.path), r"config\.json"),
        "checkpoint": (step / manifest, lambda: load_checkpoint(step).facts, "damaged|incomplete"),
        "shards": (
            shards.path / manifest,
            lambda: load_shards(shards.path).manifest,
            "the token shards in .* are damaged",
        ),
    }[kind]
    sound, before, rng = path.read_bytes(), read(), random.Random(1)
    for _ in range(300):
        data = bytearray(sound)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with pytest.raises(UserError, match=said):
            read()
    path.write_bytes(sound)
    assert read() == before


def test_a_seal_cannot_be_left_out(run: Run) -> None:
    path = run.path / "config.json"
    content = read_sealed(path)
    path.write_text(json.dumps(content, indent=2))
    with pytest.raises(UserError, match=r"config\.json is damaged or was changed"):
        Run.load(run.path)


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    data = RunData("Ünïcode 文.txt", False, 3, stages=(), datasets={"jokes": 0.5})
    run = Run(Run.load(TINY / "run").model, TrainConfig(), data, options={"a": "ü"}, path=tmp_path)
    run.write_config()
    assert Run.load(tmp_path) == run


@pytest.mark.parametrize("text", ["", "[]", "3", "null", '{"a": 1}', '{"seal": 1}', "[" * 100_000])
def test_what_was_never_sealed_is_no_sealed_text(text: str) -> None:
    with pytest.raises(ValueError):
        unseal(text)
    assert unseal(sealed({"a": [1.5, None, "ü"]})) == {"a": [1.5, None, "ü"]}


def test_json_that_is_nested_too_deeply_is_damage(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for read in (read_json, read_sealed):
        with pytest.raises(UserError, match=r"deep\.json is damaged"):
            read(tmp_path / "deep.json")


def test_json_is_written_to_be_read_by_people_and_even_half_a_surrogate_pair(
    tmp_path: Path,
) -> None:
    """A file of somebody else may hold that: it is JSON, and no text that UTF-8 can hold."""
    path = tmp_path / "a.json"
    write_json(path, {"文": "ü", "half": "\ud800 \\ud800"})
    assert '"文": "ü"' in path.read_text(encoding="utf-8")
    assert read_json(path) == {"文": "ü", "half": "\ud800 \\ud800"}
