"""What earlier versions wrote is still read: model folders, translators, runs, token shards."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FIRST, ROOT

from export.__main__ import main as export_main
from gptcore.bundle import load_bundle, load_translation_bundle, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.facts import Imported
from gptcore.model import load_model
from gptcore.nn.checkpoint import load_checkpoint
from gptcore.system.files import sealed
from gptcore.translation.onnx import load_translator
from gptcore.translation.search import translate
from training.__main__ import main
from training.data.shards import load_shards
from training.run.directory import Run

MODELS = ROOT / "models"
KEY = "b7cfdb1b5ba5f47c"  # of its token shards


@pytest.fixture
def old_run(tmp_path: Path) -> Run:
    """A copy of the first format's run beside its shards, which it finds; it is complete."""
    run = shutil.copytree(FIRST / "run", tmp_path / "run")
    shutil.copytree(FIRST / "shards", tmp_path / "shards")
    edit(run / "config.json", "/fixture/", f"{tmp_path.as_posix()}/")
    return Run.load(run)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("variant", ["fp32", "int8"])
def test_a_model_folder_of_the_first_format_answers(variant: str) -> None:
    bundle = load_bundle(FIRST / "model")
    assert (bundle.name, bundle.is_chat, bundle.config.n_embd) == ("fixture", True, 16)
    assert set(bundle.variants) == {"fp32", "int8"}
    model = load_model(FIRST / "model", threads=1, variant=variant)
    question = [{"role": "user", "content": "Hello!"}]
    pieces = list(chat(model, question, Sampling(temperature=0.0), max_tokens=4))
    assert pieces[-1].finish and pieces[-1].n_prompt == 9


def test_a_translator_of_the_first_format_translates() -> None:
    bundle = load_translation_bundle(FIRST / "translator")
    assert bundle.name == "fixture-translator" and bundle.examples[0] == "Five white fish jump."
    translator = load_translator(FIRST / "translator", threads=1)
    assert translate(translator, bundle.examples[0]).target_ids


def test_token_shards_of_the_first_format_are_read() -> None:
    shards = load_shards(FIRST / "shards" / KEY)
    assert shards.is_chat and shards.tokenizer.vocab_size == 320
    assert sum(len(shard) for shard in shards.split("train")) == 12_356


def test_a_run_of_the_first_format_is_sound(
    old_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old_run.train.steps == 6 and old_run.model.n_embd == 16
    assert load_checkpoint(old_run.checkpoints / "step-6").facts["step"] == 6
    assert main(["doctor", str(old_run.path)]) == 0
    assert "the run is complete, at step 6" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_of_the_first_format_goes_on_and_is_exported(old_run: Run, tmp_path: Path) -> None:
    edit(old_run.path / "config.json", '"steps": 6', '"steps": 8')
    (old_run.path / "summary.json").unlink()
    assert main(["--out", str(old_run.path), "--resume"]) == 0
    assert Run.load(old_run.path).newest_checkpoint().facts["step"] == 8
    out = tmp_path / "model"
    assert export_main([str(old_run.path), "--out", str(out), "--quantize", "q8", "--force"]) == 0
    assert set(load_bundle(out).variants) == {"fp32", "q8"}


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(
            lambda run: run.model.n_encoder_layer == 1 and isinstance(run.model, Seq2SeqConfig),
            id="translator",
        ),
        pytest.param(lambda run: run.clock is None, id="recipe"),
        pytest.param(lambda run: 267 < run.clock.budget_s < 268, id="planned"),
    ],
)
def test_settings_of_every_kind_of_run_of_the_first_format_are_read(
    tmp_path: Path, look: Callable[[Run], bool], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    shutil.copyfile(FIRST / "configs" / f"{name}.json", tmp_path / "config.json")
    run = Run.load(tmp_path)
    assert look(run)
    run.write_config()
    assert Run.load(tmp_path) == run


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format", 3, r"gptcore\.json has format=3, and this version of gptcore knows 1 to 2"),
        ("format", "2", r"gptcore\.json: format='2' is not of type int"),
        ("colour", "red", r"unknown key in .*gptcore\.json: 'colour'"),
        ("chat", 1, r"gptcore\.json: chat=1 is not of type bool"),
        ("parity", {}, r"gptcore\.json: parity=\{\} is not of type tuple"),
        ("variants", {"fp32": {"file": "x"}}, r"gptcore\.json: variants: fp32 lacks bytes"),
        ("config", {"norm": "batchnorm"}, r"gptcore\.json: config: norm: 'batchnorm'"),
        ("config", {"n_layer": 0}, r"gptcore\.json: config: n_layer=0 is out of range"),
        ("sha256", {"../app.py": "0"}, r"gptcore\.json: sha256 names '\.\./app\.py', which is out"),
    ],
)
def test_facts_that_are_not_understood_are_refused_with_file_and_key(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    path = tmp_path / "gptcore.json"
    facts = json.loads((FIRST / "model" / "gptcore.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps(facts | {key: value}), encoding="utf-8")
    with pytest.raises(UserError, match=said) as refusal:
        read_facts(tmp_path)
    assert "\n" not in str(refusal.value)


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    for folder in (FIRST / "model", FIRST / "translator", MODELS / "nano", MODELS / "default"):
        facts = read_facts(folder)
        write_facts(tmp_path, facts)
        assert read_facts(tmp_path) == replace(facts, sha256={}, format=2)


def test_the_source_of_an_imported_model_had_another_name_in_the_first_format(
    tmp_path: Path,
) -> None:
    facts = json.loads((FIRST / "model" / "gptcore.json").read_text(encoding="utf-8"))
    facts["imported"] = {"from": "SmolLM2", "measured_on": "a book"}
    (tmp_path / "gptcore.json").write_text(json.dumps(facts), encoding="utf-8")
    assert read_facts(tmp_path).imported == Imported("SmolLM2", measured_on="a book")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, r"config\.json has format=99, and this version of gptcore knows 1 to 2"),
        ({"data": {"source": "x"}}, r"config\.json: data lacks chat"),
        ({"options": {"shards": 1}}, r"config\.json: options: shards=1 is not of type str"),
        ({"train": {"steps": "6"}}, r"config\.json: train: steps='6' is not of type int"),
        ({"trane": {}}, r"unknown key in .*config\.json: 'trane': did you mean 'train'\?"),
    ],
    ids=str,
)
def test_settings_that_are_not_understood_are_refused_with_file_and_key(
    tmp_path: Path, change: dict, said: str
) -> None:
    settings = json.loads((FIRST / "run" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(sealed(settings | change), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        Run.load(tmp_path)
