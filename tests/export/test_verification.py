"""What an export says of itself: what was compared, what was not, and under which licence it is."""

import dataclasses
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

from export.__main__ import main
from export.folder.card import Hub, read_hub, write_card
from export.pretrained.config import read_rope
from export.verify.decoder import load_reference, reordering, rounding, run_torch, verify
from export.verify.hugging_face import check_config, text_ids
from export.verify.report import TOLERANCE, any_failed, claim
from export.verify.rounding import in_float64, limit_of
from gptcore.bundle import load_bundle, read_facts
from gptcore.facts import Check
from gptcore.feeds import no_cache
from gptcore.nn.gpt import whole_sequence
from gptcore.text.tokenizer import Tokenizer
from training.data.shards.folder import prepare
from training.data.sources import run_data_of


def compare_config(reference: Path, folder: Path) -> Check:
    """With the configuration and weights in another folder."""
    model = load_reference(load_bundle(reference))
    ids = text_ids(model.config)
    with torch.inference_mode():
        return check_config(
            ids, run_torch(model, ids, no_cache(model.config))[0], folder, TOLERANCE
        )


def test_stretched_positions_are_the_same_in_transformers(stretched: Path) -> None:
    bundle = load_bundle(stretched)
    check = compare_config(stretched, stretched)
    assert check.passed and check.cases == bundle.config.block_size, check
    settings = json.loads((stretched / "config.json").read_text())
    rope = read_rope(settings)
    plain = dataclasses.replace(bundle.config, position="rotary", rope_factor=8.0)
    assert dataclasses.replace(plain, **rope) == bundle.config


@pytest.mark.slow
def test_pytorchs_model_is_freed_before_onnx_runtime_opens_the_graph(model_folder: Path) -> None:
    """In a process of its own: only its first model is in a cycle of frames."""
    program = """
        import gc, sys, weakref
        from pathlib import Path
        from export.verify import decoder
        from gptcore.bundle import load_bundle

        def load(bundle):
            model = opened(bundle)
            models.append(weakref.ref(model))
            return model

        def compare(*_):
            sys.exit(f"{len(models)} model, freed: {models[0]() is None}")

        gc.disable()
        models, opened = [], decoder.load_reference
        decoder.load_reference, decoder.compare_graph = load, compare
        decoder.verify(load_bundle(Path(sys.argv[1])))
    """
    words = [sys.executable, "-c", textwrap.dedent(program), str(model_folder)]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert found.stderr.strip().endswith("1 model, freed: True"), found.stderr


def test_a_configuration_that_says_another_model_fails(stretched: Path, tmp_path: Path) -> None:
    settings = json.loads((stretched / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(stretched / "model.safetensors")
    plain = {"rope_type": "default", "rope_theta": 500.0}
    for change in ({"rope_parameters": plain, "rope_scaling": None}, {"rms_norm_eps": 0.1}):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        assert compare_config(stretched, tmp_path).passed is False, change


THEIRS = "logits of transformers' LlamaForCausalLM equal PyTorch's"


def test_what_was_not_compared_is_not_called_verified(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as where it is not installed
    checks = verify(load_bundle(model_folder))
    assert not any_failed(checks)
    assert sorted(check.name for check in checks if check.passed is None) == [THEIRS]
    assert sum(check.passed is True for check in checks) == 8
    assert claim(checks) == "checked against PyTorch: all 8 comparisons within their limits"
    assert main(["verify", str(model_folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("not compared") for line in lines) == 1
    facts = dataclasses.replace(read_facts(model_folder), parity=tuple(checks))
    write_card(model_folder.parent / "not_compared.md", facts, Hub())
    assert "| not compared |" in (model_folder.parent / "not_compared.md").read_text()


@pytest.mark.parametrize("at_once", [0, 1e9])
def test_a_model_computes_in_64_bits(
    at_once: float, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part by part, and as a whole."""
    monkeypatch.setattr("export.verify.rounding.AT_ONCE", at_once)
    monkeypatch.setattr("export.verify.rounding.HEAD_ROWS", 200)
    model = load_reference(load_bundle(model_folder))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = whole_sequence(torch.arange(20)[None])
    with torch.inference_mode():
        with in_float64(model):
            wide = model(**inputs)[0]
        again = model.state_dict()
        assert all(torch.equal(value, again[name]) for name, value in weights.items())
        assert model.head.weight is model.embed.weight
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide, model.double()(**inputs)[0], rtol=1e-12, atol=1e-12)


def test_a_model_may_differ_by_as_much_as_its_weights_round(model_folder: Path) -> None:
    """Massive activations, as in SmolLM2: what is added to them loses its last bits."""
    model = load_reference(load_bundle(model_folder))
    ids = np.arange(20)[None]
    found = []
    for size in (1.0, 1e5):
        with torch.inference_mode():
            model.embed.weight[:, 0] *= size
            case = ids, 0, run_torch(model, ids, no_cache(model.config))
            found.append([*map(limit_of, rounding(model, [case]))])
    assert found[0] == [TOLERANCE, TOLERANCE] and found[1][0] > TOLERANCE, found


def test_a_model_may_differ_by_as_much_as_its_rows_do_from_those_alone(model_folder: Path) -> None:
    """A place that makes roundings larger may be met in one order of summation alone."""
    model = load_reference(load_bundle(model_folder))
    ids = np.arange(40).reshape(2, 20)
    with torch.inference_mode():
        before = run_torch(model, ids[:, :5], no_cache(model.config, 2))[1:]
        outputs = run_torch(model, ids[:, 5:], before)
        apart = reordering(model, [(ids, 5, outputs)])
        assert max(apart) < TOLERANCE / 4
        outputs[0][1, 3, 7] += 0.5  # in the second row
        assert reordering(model, [(ids, 5, outputs)])[0] == pytest.approx(0.5, abs=1e-4)
        assert reordering(model, [(ids[:1], 5, outputs)]) == (0, 0), "one row has no other order"


def test_large_keys_allow_the_logits_nothing(model_folder: Path) -> None:
    model = load_reference(load_bundle(model_folder))
    config, ids = model.config, np.arange(20)[None]
    n_q, n_k = (n * config.head_dim for n in (config.n_head, config.n_kv_head))
    with torch.inference_mode():
        packed = model.blocks[0].attention.qkv.weight
        packed[:n_q] /= 2**14
        packed[n_q : n_q + n_k] *= 2**14  # the products of both are what they were
        case = ids, 0, run_torch(model, ids, no_cache(config))
        logits, cache = map(limit_of, rounding(model, [case]))
    assert logits == TOLERANCE < cache


def says_no_licence(folder: Path, text: str) -> bool:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: other\n") and read_hub(folder).license == "other"
    return f"The licence of\n{text}" in card and "is not known here" in card


@pytest.mark.parametrize("written", ["mit", '"mit"', "'mit'", "mit  # of the weights"])
def test_a_licence_is_read_as_yaml_has_it(tmp_path: Path, written: str) -> None:
    (tmp_path / "README.md").write_text(f"---\nlicense: {written}\n---\n")
    assert read_hub(tmp_path).license == "mit"


def test_a_card_names_no_licence_that_nobody_named(model_folder: Path) -> None:
    assert says_no_licence(model_folder, "chats.jsonl")


def test_a_translators_card_names_no_licence_either(translation_folder: Path) -> None:
    assert says_no_licence(translation_folder, "pairs.tsv")


def test_a_card_lists_the_licences_of_known_texts(model_folder: Path, tmp_path: Path) -> None:
    facts = read_facts(model_folder)
    datasets = {"dolly": 1.0, "stories": 2.0, "x": 3.0, "dialogues": 4.0}
    data = dataclasses.replace(facts.training.data, datasets=datasets)
    training = dataclasses.replace(facts.training, data=data)
    facts = dataclasses.replace(facts, training=training)
    write_card(tmp_path / "open.md", facts, Hub())
    card = (tmp_path / "open.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: other\n") and "have the licences above" in card
    assert "| [dolly](https://" in card and ") | 1 x | CC-BY-SA-3.0 |" in card
    assert "CDLA-Sharing-1.0" in card
    assert "library_name: gptcore" in card, "a folder without config.json is no library's Llama"
    assert "- llama" not in card and "loads as" not in card
    assert "| x | 3 x | unknown | unknown |" in card and "| dialogues | 4 x | MIT |" in card
    write_card(tmp_path / "named.md", facts, Hub("mit"))
    card = (tmp_path / "named.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: mit\n") and "## Licence" not in card
    theirs = "license_name: theirs\nlicense_link: https://theirs.example/LICENSE\n"
    write_card(tmp_path / "README.md", facts, Hub(terms=theirs))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.startswith(f"---\nlicense: other\n{theirs}") and "## Licence" not in card
    assert read_hub(tmp_path).terms == theirs


def test_a_link_to_a_licence_in_the_folder_itself_is_not_handed_on(tmp_path: Path) -> None:
    """Beside a copy's card lies no such file, and a Space has this project's own."""
    (tmp_path / "README.md").write_text(
        "---\nlicense: other\nlicense_name: theirs\nlicense_link: LICENSE\n---\n"
    )
    assert read_hub(tmp_path).terms == "license_name: theirs\n"


def test_a_run_on_the_projects_own_dialogues_knows_its_text(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    shards = prepare(lambda: iter(["one text", "another"] * 9), tmp_path, 512, tokenizer)
    assert run_data_of(shards, "made up", {"dialogues": 1.0}).datasets == {"dialogues": 1}
    assert not run_data_of(shards, "100,000 made-up dialogues").datasets
