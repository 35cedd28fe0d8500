"""What an export says of itself: what was compared, what was not, and under which licence it is."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from export.__main__ import main
from export.folder.card import Hub, read_license, write_card
from export.pretrained.hugging_face import read_rope
from export.verify.decoder import load_reference, run_torch, verify
from export.verify.llama_config import check_config, text_ids
from export.verify.report import Check, any_failed, as_facts, claim
from gptcore.bundle import load_bundle, read_facts
from gptcore.config import ModelConfig
from gptcore.feeds import no_cache
from gptcore.text.tokenizer import Tokenizer
from training.data.shards import prepare
from training.data.sources import facts_of, open_corpus


def compare_config(reference: Path, folder: Path) -> Check:
    """With the configuration and weights in another folder."""
    model = load_reference(load_bundle(reference))
    ids = text_ids(model.config)
    with torch.inference_mode():
        return check_config(ids, run_torch(model, ids, no_cache(model.config))[0], folder)


def test_stretched_positions_are_the_same_in_transformers(stretched: Path) -> None:
    bundle = load_bundle(stretched)
    check = compare_config(stretched, stretched)
    assert check.passed and check.cases == bundle.config.block_size, check
    settings = json.loads((stretched / "config.json").read_text())
    rope = read_rope(settings, stretched / "config.json")
    plain = dataclasses.replace(bundle.config, position="rotary", rope_factor=8.0)
    assert ModelConfig.from_dict(plain.to_dict() | rope) == bundle.config


def test_a_configuration_that_says_another_model_fails(stretched: Path, tmp_path: Path) -> None:
    settings = json.loads((stretched / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(stretched / "model.safetensors")
    plain = {"rope_type": "default", "rope_theta": 500.0}
    for change in ({"rope_parameters": plain, "rope_scaling": None}, {"rms_norm_eps": 0.1}):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        assert compare_config(stretched, tmp_path).passed is False, change


def test_what_was_not_compared_is_not_called_verified(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as where it is not installed
    checks = verify(load_bundle(model_folder))
    assert not any_failed(checks) and [check.passed for check in checks] == [True] * 8 + [None]
    assert claim(checks).startswith("verified: ")
    assert "8 comparisons, each within its limit; not compared: logits of tr" in claim(checks)
    assert main(["verify", str(model_folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("not compared")
    facts = dataclasses.replace(read_facts(model_folder), parity=as_facts(checks))
    write_card(model_folder.parent / "not_compared.md", facts, Hub())
    assert "| not compared |" in (model_folder.parent / "not_compared.md").read_text()


def says_no_licence(folder: Path, text: str) -> bool:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: other\n") and read_license(folder) == "other"
    return f"The licence of\n{text}" in card and "is not known here" in card


def test_a_card_names_no_licence_that_nobody_named(model_folder: Path) -> None:
    assert says_no_licence(model_folder, "chats.jsonl")


def test_a_translators_card_names_no_licence_either(translation_folder: Path) -> None:
    assert says_no_licence(translation_folder, "pairs.tsv")


def test_a_card_lists_the_licences_of_known_texts(model_folder: Path, tmp_path: Path) -> None:
    facts = read_facts(model_folder)
    datasets = {"sales-textbook": 1.0, "stories": 2.0, "x": 3.0, "dialogues": 4.0}
    data = dataclasses.replace(facts.training.data, datasets=datasets)
    training = dataclasses.replace(facts.training, data=data)
    facts = dataclasses.replace(facts, training=training)
    write_card(tmp_path / "open.md", facts, Hub())
    card = (tmp_path / "open.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: other\n") and "have the licences above" in card
    assert "| sales-textbook | 1 x | unknown |" in card and "CDLA-Sharing-1.0" in card
    assert "| x | 3 x | unknown | unknown |" in card and "| dialogues | 4 x | MIT |" in card
    write_card(tmp_path / "named.md", facts, Hub("mit"))
    card = (tmp_path / "named.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: mit\n") and "## Licence" not in card


def test_a_run_on_the_projects_own_dialogues_knows_its_text(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    shards = prepare(lambda: iter(["one text", "another"] * 9), tmp_path, 512, tokenizer)
    assert facts_of(shards, open_corpus([], seed=1)[1]).datasets == {"dialogues": 1}
    assert not facts_of(shards, "book.txt").datasets
