"""What gptcore.json and a run's config.json hold is typed: what is not understood is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import NANO, ROOT, TINY

from gptcore.bundle import read_facts, write_facts
from gptcore.checks import UserError
from gptcore.system.files import read_sealed, sealed
from training.run.directory import Run


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format", 3, r"gptcore\.json has format=3, and this version of gptcore knows 1: use the"),
        ("format", None, r"gptcore\.json has format=None, and this version of gptcore knows 1"),
        ("format", "1", r"gptcore\.json has format='1', and this version of gptcore knows 1"),
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
    facts = json.loads((TINY / "model" / "gptcore.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps(facts | {key: value}), encoding="utf-8")
    with pytest.raises(UserError, match=said) as refusal:
        read_facts(tmp_path)
    assert "\n" not in str(refusal.value)


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    for folder in (TINY / "model", TINY / "translator", NANO, ROOT / "models" / "default"):
        facts = read_facts(folder)
        write_facts(tmp_path, facts)
        assert read_facts(tmp_path) == replace(facts, sha256={})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, r"config\.json has format=99, and this version of gptcore knows 1: use"),
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
    settings = read_sealed(TINY / "run" / "config.json")
    (tmp_path / "config.json").write_text(sealed(settings | change), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        Run.load(tmp_path)
