"""A small copy of a model folder: what is kept, what it says, that it still works."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Refused

from export.__main__ import main
from export.ship.small import kept_variants
from gptcore.bundle import (
    FACTS,
    INSPECT,
    UNTRAINED,
    VARIANTS,
    data_file,
    load_bundle,
    read_facts,
    write_facts,
)
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.facts import Variant
from gptcore.inspection import Inspector, ids_of_text, inspect_ids
from gptcore.model import load_model

pytestmark = pytest.mark.slow  # it needs every smaller file, twice
HELLO = [{"role": "user", "content": "Hello!"}]
SCORES = {
    "model": "models/whole: tiny, q8, ONNX Runtime",
    "n_seeds": 5,
    "skills": {
        "greeting": {"n": 4, "greedy": 0.75, "sampled": 0.5, "lowest": 0.25},
        "all": {"n": 4, "greedy": 0.75, "sampled": 0.5, "lowest": 0.25},
    },
    "conversations": [{"user": ["Hello!"]}],
}
OTHER = {
    "n_seeds": 5,
    "skills": {
        "danger": {"n": 2, "greedy": 1.0, "sampled": 0.9, "lowest": 0.5},
        "all": {"n": 2, "greedy": 1.0, "sampled": 0.9, "lowest": 0.5},
    },
}


@pytest.fixture(scope="module")
def whole(all_variants: Path, inspectable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file of the tiny model."""
    folder = shutil.copytree(all_variants, tmp_path_factory.mktemp("whole") / "whole")
    for graph in (INSPECT, UNTRAINED):
        shutil.copyfile(inspectable / graph, folder / graph)
    write_facts(folder, read_facts(folder))
    return folder


@pytest.fixture(scope="module")
def shipped(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shipped")
    files = [str(out / "scores.json"), str(out / "other.json")]
    for file, scores in zip(files, (SCORES, OTHER)):
        Path(file).write_text(json.dumps(scores))
    assert main(["ship", str(whole), "--out", str(out / "small"), "--scores", *files]) == 0
    return out / "small"


def test_the_best_small_file_and_the_browsers_one_are_kept(whole: Path, shipped: Path) -> None:
    rows = read_facts(whole).variants
    best = min(("q8", "q4"), key=lambda name: rows[name].bits_per_byte)
    assert set(load_bundle(shipped).variants) == {best, "int8"}
    names = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*")}
    assert not names & {"model.safetensors", VARIANTS["fp32"]}
    genai = json.loads((shipped / "genai_config.json").read_text())
    assert genai["model"]["decoder"]["filename"] == VARIANTS[best]


def test_chance_chooses_no_file_that_no_training_goes_on_from() -> None:
    bundle = load_bundle(ROOT / "models" / "default")
    bits = {"fp32": 1.0, "fp16": 0.9, "int8": 0.9, "q8": 1.01, "q4": 1.02, "q4f16": 0.9}
    rows = {name: Variant(VARIANTS[name], 1, bits[name], 1.0, 0.0) for name in bits}
    facts = replace(bundle.facts, variants=rows, sha256=dict.fromkeys(VARIANTS.values(), ""))
    assert kept_variants(replace(bundle, facts=facts)) == ["q8", "int8"]


def test_the_whole_folder_is_not_replaced_by_its_small_copy(whole: Path, refused: Refused) -> None:
    said = refused(main, "ship", whole, "--out", whole.parent / "." / whole.name)
    assert "is the folder to ship, which would lose fp32" in said
    assert (whole / VARIANTS["fp32"]).is_file()


def test_another_model_is_not_replaced_by_it(whole: Path, tmp_path: Path, refused: Refused) -> None:
    out = tmp_path / "out"
    shutil.copytree(ROOT / "models" / "default", out)
    assert "(gptcore chat): choose another" in refused(main, "ship", whole, "--out", out)


def test_it_replies_as_the_same_file_of_the_whole_folder_does(whole: Path, shipped: Path) -> None:
    for variant in load_bundle(shipped).variants:
        first, second = (
            "".join(
                p.text for p in chat(load_model(folder, variant=variant), HELLO, Sampling(0), 20)
            )
            for folder in (whole, shipped)
        )
        assert first == second and first
    assert load_model(shipped).variant in load_bundle(shipped).variants


def test_the_inspect_tab_has_its_graph(whole: Path, shipped: Path) -> None:
    bundles = [load_bundle(folder) for folder in (whole, shipped)]
    ids = ids_of_text(bundles[0], "Hello!")
    seen = [inspect_ids(Inspector(bundle), ids, 10) for bundle in bundles]
    assert seen[0].tokens == seen[1].tokens
    assert np.abs(seen[0].attention - seen[1].attention).max() < 0.02


def test_the_card_has_the_scores_and_names_no_missing_file(shipped: Path) -> None:
    card = (shipped / "README.md").read_text()
    assert "| greeting | 4 | 75.0% | 50.0% | 25.0% |" in card
    assert "| all | 4 | 75.0% | 50.0% | 25.0% |\n| danger | 2 | 100.0% | 90.0% | 50.0% |" in card
    assert card.count("| all |") == 1 and "`all` are of other suites" in card
    assert "model.safetensors" not in card and "onnx/model.onnx" not in card
    assert "loss.png" in card and (shipped / "loss.png").is_file()
    assert "conversations" not in (shipped / FACTS).read_text()


@pytest.mark.parametrize("command", ["verify", "inspect", "gguf", "ship"])
def test_what_needs_the_whole_folder_says_so(shipped, refused: Refused, command: str) -> None:
    more = ["--out", str(shipped.parent / "again")] if command == "ship" else []
    assert "shipped without onnx/model.onnx" in refused(main, command, shipped, *more)


def test_a_folder_that_cannot_be_shipped_is_refused_by_name(
    whole: Path, model_folder: Path, tmp_path: Path, refused: Refused, monkeypatch
) -> None:
    out = tmp_path / "out"
    assert "--quantize q8,int8" in refused(main, "ship", model_folder, "--out", out)
    assert "scores" in refused(main, "ship", whole, "--out", out, "--scores", tmp_path / "no.json")
    for name, seeds in (("one", 1), ("five", 5)):
        (tmp_path / f"{name}.json").write_text(json.dumps(SCORES | {"n_seeds": seeds}))
    both = ("--scores", tmp_path / "one.json", tmp_path / "five.json")
    assert "sampled [1, 5] times" in refused(main, "ship", whole, "--out", out, *both)
    large = shutil.copytree(whole, tmp_path / "large")  # of which the weights lie beside the graphs
    with data_file(large / VARIANTS["int8"]).open("wb") as file:
        file.truncate(20_000_000)
    write_facts(large, read_facts(large))
    assert "has 20.2 MB, over 10: train" in refused(main, "ship", large, "--out", out)
    monkeypatch.setattr("export.ship.small.MAX_BYTES", 100_000)
    assert "MB, over 0: train a smaller model" in refused(main, "ship", whole, "--out", out)
    assert not out.exists()
