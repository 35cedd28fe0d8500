"""Recipes: mixes of datasets, stages that build on each other, and what is wrong in a file."""

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Refused
from trained import RECIPE_MODEL

from export.__main__ import main as export
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.nn.checkpoint import MODEL
from gptcore.system.files import write_json
from training.__main__ import main
from training.data.leaks import barred, triples
from training.data.rows import Rows
from training.data.sources import shards_of
from training.datasets.registry import DATASETS
from training.jobs.recipe import after_run, check_unchanged
from training.jobs.stages import RECIPES, Stage, mixed, read_recipe
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import Base

SETTINGS = (
    RECIPE_MODEL
    + """\
[train]
batch_size = 64
micro_batch_size = 64
dtype = "float32"
save_every = 2
"""
)
TASKS = [f"Say the number {n} in words, please." for n in range(40)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder with a publisher's file, so that nothing is downloaded."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"instruction": task, "input": "", "output": "It is a number."} for task in TASKS]
    [origin] = DATASETS["rasbt-instruct"].origins
    (folder / origin.file_name).write_text(json.dumps(rows), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def few_dialogues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.jobs.stages.N_DIALOGUES", 60)


def write(path: Path, *stages: str, settings: str = SETTINGS) -> Path:
    path.write_text(settings + "".join(f"[[stages]]\n{stage}\n" for stage in stages))
    return path


def train(out: Path, *stages: str) -> list[str]:
    """Train the stages of a recipe; the command."""
    recipe, data_dir = write(out.with_suffix(".toml"), *stages), out.parent / "data"
    command = ["recipe", str(recipe), "--out", str(out), "--data-dir", str(data_dir)]
    assert main(command) == 0
    return command


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_can_be_read(path: Path) -> None:
    stages = read_recipe(path.stem)
    assert stages == read_recipe(str(path))
    named = {name for stage in stages for name in stage.mix} & set(DATASETS)
    assert named and all(DATASETS[name].origins for name in named), "what only a mirror has"


def stage(name: str = "one", **mix: float) -> Stage:
    mix = {key.replace("_", "-"): passes for key, passes in mix.items()}
    return Stage(name, mix, ModelConfig(), TrainConfig())


def test_a_mix_reads_each_dataset_as_often_as_it_says_and_is_the_same_again(data_dir) -> None:
    mix = mixed(stage(rasbt_instruct=2.5, dialogues=1.5), data_dir)
    documents = list(mix())
    counts = Counter(chat[0]["content"] for chat in documents if chat[0]["content"] in TASKS)
    assert sum(counts.values()) == 100 and set(counts.values()) == {2, 3}
    assert len(documents) == 100 + 90
    assert list(mix()) == documents


def test_a_mix_is_as_even_at_its_end_as_at_its_beginning(data_dir) -> None:
    texts = list(mixed(stage(rasbt_instruct=4.5, dialogues=0.5), data_dir)())
    ours = [chat[0]["content"] in TASKS for chat in texts]
    quarter = len(ours) // 4
    shares = [sum(ours[i * quarter : (i + 1) * quarter]) / quarter for i in range(4)]
    assert max(shares) - min(shares) < 0.15  # in whole passes over all, the last has 1.0


def test_no_two_stages_draw_the_same_dialogues(data_dir) -> None:
    first, second = (
        {json.dumps(chat) for chat in mixed(stage(name, dialogues=2), data_dir)()}
        for name in ("one", "two")
    )
    assert len(first & second) < len(first) / 10  # a dialogue of one turn may come again


def test_what_the_behaviour_suite_asks_is_left_out_of_a_mix(data_dir, monkeypatch) -> None:
    one = stage(rasbt_instruct=1, dialogues=1)
    asked = {chat[0]["content"] for chat in mixed(one, data_dir)()}
    turns = ("say the number 7 in words please",) * 2
    known = barred()._replace(conversations=frozenset({turns}), lines=turns[:1])
    known = known._replace(having={key: [0] for key in triples(turns[0])})
    monkeypatch.setattr("training.data.leaks.barred", lambda: known)
    documents = list(mixed(one, data_dir)())
    left = {chat[0]["content"] for chat in documents}
    assert TASKS[7] in asked and TASKS[7] not in left
    assert TASKS[8] in left and len(documents) == 39 + 60


def test_a_stage_reads_its_mix_in_epochs(data_dir, tmp_path) -> None:
    stages = (
        'name = "one"\nmix = {dialogues = 1, rasbt-instruct = 0.5}',
        'name = "three"\nmix = {dialogues = 1, rasbt-instruct = 0.5}\nepochs = 3',
    )
    train(tmp_path / "runs", *stages)
    one, three = (Run.load(tmp_path / "runs" / name) for name in ("one", "three"))
    n_rows = len(Rows(shards_of(three), "train", three.row_tokens))
    assert three.train.steps == math.ceil(3 * n_rows / 64) > one.train.steps
    assert three.data.source == "3 epochs of dialogues x 1, rasbt-instruct x 0.5"
    assert three.data.datasets == {"dialogues": 4, "rasbt-instruct": 2}


def test_a_stage_keeps_a_share_of_the_weights_before_it(data_dir, tmp_path, refused) -> None:
    stages = (
        'name = "first"\nmix = {rasbt-instruct = 1}',
        'name = "second"\nmix = {rasbt-instruct = 3}',
        'name = "kept"\nmix = {rasbt-instruct = 3}\ntrain = {keep = 0.75}',
    )
    out = tmp_path / "runs"
    command = train(out, *stages)
    before, run = Run.load(out / "second").best_checkpoint().model, Run.load(out / "kept")
    measured, after = run.summary(), run.best_checkpoint()
    assert measured["kept"] == 0.75 and after.path.name == f"step-{run.train.steps}"
    assert run.evaluations()[run.train.steps]["bits_per_byte"] == measured["bits_per_byte"]

    train(tmp_path / "alone", *stages[:2], stages[2].replace("\ntrain = {keep = 0.75}", ""))
    own = Run.load(tmp_path / "alone" / "kept").best_checkpoint().model
    for name, mean in after.model.items():
        assert torch.allclose(mean, 0.75 * before[name] + 0.25 * own[name], atol=1e-6)

    del measured["kept"]  # as if it had been interrupted before it wrote this
    write_json(run.path / "summary.json", measured)
    assert main(command) == 0  # what is mixed is not mixed again
    assert run.summary()["kept"] == 0.75
    again = Run.load(out / "kept").best_checkpoint().model
    assert all(torch.equal(again[name], after.model[name]) for name in again)
    first = write(tmp_path / "first.toml", stages[0] + "\ntrain = {keep = 0.5}")
    said = refused(main, "recipe", first, "--out", tmp_path / "x", "--data-dir", data_dir)
    assert "stage first: keep=0.5, but it starts without weights to keep" in said


def test_a_stage_that_was_stopped_keeps_its_share_by_the_command_that_the_doctor_names(
    data_dir, tmp_path, capsys
) -> None:
    stages = (
        'name = "first"\nmix = {rasbt-instruct = 1}',
        'name = "kept"\nmix = {rasbt-instruct = 3}\ntrain = {keep = 0.75}\nepochs = 4',
    )
    _, recipe, *_ = train(tmp_path / "runs", *stages)
    run, before = Run.load(tmp_path / "runs" / "kept"), after_run(Run.load(tmp_path / "runs/first"))
    mixed = run.best_checkpoint()
    shutil.rmtree(mixed.path)
    (run.path / "summary.json").unlink()
    assert main(["doctor", str(run.path)]) == 0
    command = capsys.readouterr().out.strip().rpartition("python -m training ")[2]
    assert main(command.split()) == 0
    assert run.summary()["kept"] == 0.75
    again = run.best_checkpoint()
    assert all(torch.equal(again.model[name], mixed.model[name]) for name in mixed.model)

    kept = read_recipe(recipe)[1]
    less = replace(kept.training, micro_batch_size=16)  # memory
    for stage in (kept, replace(kept, training=less)):
        check_unchanged(stage, run, before)
    other = before._replace(base=Base(str(tmp_path / "other"), "0"))
    for start, said in ((other, "other"), (None, "none are named")):
        with pytest.raises(UserError, match=f"{said}.*: name the same --init"):
            check_unchanged(kept, run, start)


@pytest.mark.slow
def test_stages_go_on_from_each_other_and_a_finished_one_is_not_repeated(
    data_dir, tmp_path
) -> None:
    stages = (
        'name = "first"\nmix = {rasbt-instruct = 3, dialogues = 1}',
        'name = "second"\nmix = {dialogues = 2}\ntrain = {learning_rate = 0.0}',
    )
    command = train(tmp_path / "runs", *stages)
    first, second = (Run.load(tmp_path / "runs" / name) for name in ("first", "second"))
    assert first.tokenizer.sha256 == second.tokenizer.sha256
    assert second.data.source == "dialogues x 2"
    before, after = (run.best_checkpoint().model for run in (first, second))
    assert all((before[name] == after[name]).all() for name in before)  # at a rate of 0

    (second.path / "summary.json").unlink()  # as if it had been stopped at its last checkpoint
    untouched = (first.path / "summary.json").stat().st_mtime_ns
    shutil.rmtree(data_dir)  # what is tokenised is not read again
    assert main(command) == 0
    assert second.is_complete
    assert (first.path / "summary.json").stat().st_mtime_ns == untouched
    (second.best_checkpoint().path / MODEL).write_bytes(b"damaged")
    assert main(command) == 0, "no stage begins with the weights of the last one"


@pytest.mark.slow
def test_a_later_stage_starts_from_a_folder(data_dir, tmp_path, refused) -> None:
    stages = ('name = "first"\nmix = {dialogues = 1}',
              'name = "second"\nmix = {dialogues = 2}\ntrain = {learning_rate = 0.0}')  # fmt: skip
    command = train(tmp_path / "runs", *stages)
    folder = tmp_path / "model"
    assert export([str(tmp_path / "runs" / "first"), "--out", str(folder)]) == 0
    alone = [*command, "--out", str(tmp_path / "alone"), "--from", "second"]
    assert "--init" in refused(main, *alone)
    assert main([*alone, "--init", str(folder)]) == 0
    both = [Run.load(tmp_path / name / "second") for name in ("runs", "alone")]
    weights = [run.best_checkpoint().model for run in both]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    assert both[1].data.datasets == both[0].data.datasets == {"dialogues": 3}
    assert [stage.name for stage in both[1].data.stages] == ["model"]
    assert "first" in refused(main, *alone[:-1], "third", "--init", str(folder))


def test_no_stage_measures_on_what_another_has_learned(data_dir, tmp_path, monkeypatch) -> None:
    """Though a smaller corpus can spare a larger share of itself."""
    monkeypatch.setattr("training.data.survey.MAX_VALIDATION_BYTES", 1000)
    monkeypatch.setattr("training.data.survey.VALIDATION_SHARE", 1.0)
    monkeypatch.setattr("training.jobs.recipe.HELD_OUT", 0.2)
    monkeypatch.setattr("training.data.shards.folder.FEW_HELD_OUT", 0)  # it is enough to measure on
    stages = (
        'name = "large"\nmix = {rasbt-instruct = 9}',
        'name = "little"\nmix = {rasbt-instruct = 0.9}',
    )
    train(tmp_path / "runs", *stages)
    learned = documents_of(tmp_path / "runs" / "large", "train")
    held_out = documents_of(tmp_path / "runs" / "little", "val")
    assert held_out and not held_out & learned


def documents_of(run: Path, split: str) -> set[tuple[int, ...]]:
    documents = set()
    for shard in shards_of(Run.load(run)).split(split):
        documents |= {tuple(ids.tolist()) for ids in np.split(shard[:], shard.starts[1:])}
    return documents


@pytest.mark.parametrize("finished", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("change", [("2}", "3}"), ("2}", "2}\nepochs = 2"), ("0.0", "0.1")])
def test_a_begun_stage_keeps_its_mix_and_settings(
    change: tuple[str, str], finished: bool, tmp_path: Path, refused: Refused
) -> None:
    stage = 'name = "only"\nmix = {dialogues = 2}\ntrain = {learning_rate = 0.0}'
    command = train(tmp_path / "runs", stage)
    if not finished:
        (tmp_path / "runs" / "only" / "summary.json").unlink()
    write(tmp_path / "runs.toml", stage.replace(*change))
    assert "restore the recipe, or choose another --out" in refused(main, *command)


@pytest.mark.parametrize(
    "stages, settings, said",
    [
        ((), SETTINGS, "add \\[\\[stages"),
        (('name = "a"\nmix = {dialogues = 1}',) * 2, SETTINGS, "have the same name"),
        (('name = "a b"\nmix = {dialogues = 1}',), SETTINGS, "'a b'"),
        (('name = "a"\nmix = {}',), SETTINGS, "a: .*mix"),
        (('name = "a"\nmix = {poems = 1}',), SETTINGS, "a, mix: 'poems'"),
        (('name = "a"\nmix = {dialogues = -1}',), SETTINGS, "dialogues=-1"),
        (('name = "a"\nmix = {dialogues = nan}',), SETTINGS, "dialogues=nan"),
        (('name = "a"\nmix = {dialogues = 1}\nrounds = 2',), SETTINGS, "'rounds'"),
        (('name = "a"\nmix = {dialogues = 1}\nepochs = 0',), SETTINGS, "epochs=0"),
        (('name = "a"\nmix = {dialogues = 1}\nepochs = 1.5',), SETTINGS, "epochs=1.5"),
        (('name = "a"\nmix = {dialogues = 1}\nepochs = true',), SETTINGS, "epochs=True"),
        (('name = "a"\nmix = {dialogues = 1}\ntrain = {keep = 1.0}',), SETTINGS, "keep=1"),
        (('name = "a"\nmix = {dialogues = 1}\ntrain = {keep = "half"}',), SETTINGS, "keep='half'"),
        (('name = "a"\nmix = {dialogues = 1}\ntrain = {steps = 5}',), SETTINGS, "steps"),
        (('name = "a"\nmix = {dialogues = 1}\ntrain = {lora = 4}',), SETTINGS, "lora adapts"),
        (
            ('name = "a"\nmix = {dialogues = 1}\ntrain = {row_tokens = 9999}',),
            SETTINGS,
            "row_tokens=9999 is more",
        ),
        (('name = "a"\nmix = {dialogues = 1}',), "[model]\nn_layer = 0\n", "n_layer"),
        (('name = "a"\nmix = {dialogues = 1}',), "[model]\nlayers = 2\n", "layers"),
        (("name = ",), SETTINGS, "not a TOML file"),
        (('name = "shards"\nmix = {dialogues = 1}',), SETTINGS, "'shards'"),
        (('name = "a"\nmix = 3',), SETTINGS, "a, mix: 3 is not a table"),
        (('name = "a"\nmix = ["dialogues"]',), SETTINGS, "a, mix: .* is not a table"),
        (('name = "a"\nmix = {dialogues = 1}\ntrain = 3',), SETTINGS, "a, train: 3 is not a table"),
        (('name = "a"\nmix = {dialogues = 1}',), "model = 3\n", "model: 3 is not a table"),
        ((), "stages = 3\n", "add \\[\\[stages"),
        ((), "[stages]\nname = 'a'\n", "add \\[\\[stages"),
    ],
)
def test_a_bad_recipe_is_refused_by_name(tmp_path, stages, settings, said) -> None:
    with pytest.raises(UserError, match=said):
        read_recipe(str(write(tmp_path / "bad.toml", *stages, settings=settings)))


def test_a_file_that_is_no_text_is_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    for name, said in (("latin.toml", "not a TOML file"), ("", "no recipe")):
        with pytest.raises(UserError, match=said):
            read_recipe(str(tmp_path / name))


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="default"):
        read_recipe("nowhere")
