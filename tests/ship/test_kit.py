"""The embedding kit: what is in it, that its graphs choose as the engine does, what is refused."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from conftest import NANO, Refused
from foreign import N_INCOMPLETE

from export.__main__ import main
from export.formats.feeds import decoder_feeds
from export.kit import write as kit_write
from export.kit.contract import page
from export.kit.vectors import make_prompts, make_vectors
from export.kit.write import write_lines
from export.pretrained.tokenizer import read_tokenizer
from export.verify.report import TOLERANCE
from export.verify.sampling import Choice, choose, compare_sampling, is_clear, sampling_feeds
from gptcore.bundle import INSPECT, default_model, load_bundle
from gptcore.checks import UserError
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling, sample_rows
from gptcore.facts import Check
from gptcore.feeds import no_cache
from gptcore.model import load_model
from gptcore.text.chat_template import render, text_opening


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kit") / "kit"
    assert main(["embed", str(NANO), "--out", str(out)]) == 0
    return out


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_choice_between_two_logits_that_rounding_can_swap_is_not_clear() -> None:
    """Neither the likeliest of them, nor the last of the k likeliest."""
    near, apart = np.array([1.0, 1.0 + 1e-6, -3.0]), np.array([1.0, 2.0, -3.0])
    for temperature, top_k in ((0.0, 0), (1.0, 1)):
        choice = Choice(temperature, top_k, 1.0, draw=0.25)
        assert not is_clear(near, choice) and is_clear(apart, choice)


def test_a_kit_is_a_whole_model_folder_without_what_only_gptcore_needs(kit: Path) -> None:
    bundle = load_bundle(kit)
    assert set(bundle.variants) == set(load_bundle(NANO).variants)
    assert (
        not bundle.serving
        and INSPECT not in bundle.facts.sha256
        and not list(kit.glob("*.safetensors"))
    )
    assert {"contract.json", "CONTRACT.md", "vectors.json"} <= set(bundle.facts.sha256)
    card, theirs = ((folder / "README.md").read_text("utf-8") for folder in (kit, NANO))
    assert "safetensors" in theirs and "safetensors" not in card and "license: mit" in card


def test_the_contract_names_the_inputs_and_outputs_of_each_graph(kit: Path) -> None:
    contract = read(kit / "contract.json")
    for name, file in contract["files"].items():
        session = ort.InferenceSession(kit / file)
        for side, values in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            found = {value.name: value.shape for value in values}
            assert found == {v["name"]: v["shape"] for v in contract["graphs"][name][side]}


def test_the_page_says_what_the_contract_says(kit: Path) -> None:
    page, contract = (kit / "CONTRACT.md").read_text(encoding="utf-8"), read(kit / "contract.json")
    for name, i in contract["tokenizer"]["special"].items():
        assert f"| `{name.replace('|', chr(92) + '|')}` | {i} |" in page
    named = {v["name"] for v in contract["graphs"]["sampling"]["inputs"]}
    assert all(f"`{name}`" in page for name in named if not name.startswith("past"))
    assert str(contract["limits"]["context"]) in page and "{" not in page.replace("`{'", "")


def test_the_page_says_what_becomes_of_a_byte_that_has_no_token(
    kit: Path, incomplete: Path
) -> None:
    sentence, bundle = "A byte without a token is left out", load_bundle(kit)
    told = read(kit / "contract.json"), read(kit / "vectors.json")
    assert sentence not in page(bundle, *told)
    lacking = replace(bundle, tokenizer=read_tokenizer(incomplete, N_INCOMPLETE))
    assert sentence in page(lacking, *told)


def test_the_page_names_tokenizer_json_only_where_the_kit_has_it(kit: Path, tmp_path: Path) -> None:
    bundle, told = load_bundle(kit), (read(kit / "contract.json"), read(kit / "vectors.json"))
    for words in ("`tokenizer.json` is for", "add_special_tokens=False", "encode_special_tokens"):
        assert words in page(bundle, *told)
        assert words not in page(replace(bundle, path=tmp_path), *told)


def test_a_context_that_no_prompt_fits_is_refused() -> None:
    bundle = load_bundle(NANO)
    narrow = replace(bundle, config=replace(bundle.config, block_size=4))
    with pytest.raises(UserError, match="a context of 4 tokens, which no prompt of a kit fits"):
        make_vectors(narrow)


def test_vectors_are_what_the_engine_computes(kit: Path) -> None:
    vectors, tokenizer = read(kit / "vectors.json"), load_bundle(NANO).tokenizer
    counts = {name: len(vectors[name]) for name in ("texts", "prompts", "draws")}
    assert counts == {"texts": 200, "prompts": 20, "draws": 50}
    assert all(tokenizer.encode(v["text"]) == v["ids"] for v in vectors["texts"])
    ended = 0
    for v in vectors["prompts"]:
        assert v["ids"] == render(v["messages"], tokenizer, prompt=True)
        model = load_model(NANO, threads=1, variant="fp32")
        pieces = chat(model, v["messages"], Sampling(temperature=0), max_tokens=32)
        assert "".join(piece.text for piece in pieces).startswith(v["reply"])
        assert v["logits"][0][1] == max(value for _, value in v["logits"])
        ended += v["greedy"][-1] in tokenizer.special.values()
    assert ended > 5  # replies that end within the vectors


def test_a_port_may_be_as_far_from_the_logits_as_the_model_was_verified_to_be() -> None:
    bundle = load_bundle(NANO)
    parity = tuple(replace(check, limit=50 * check.limit) for check in bundle.facts.parity)
    far = make_vectors(replace(bundle, facts=replace(bundle.facts, parity=parity)))
    near = make_vectors(bundle)
    assert (near["logits_limit"], far["logits_limit"]) == (1e-3, pytest.approx(50 * TOLERANCE))
    pairs = [(a["greedy"], b["greedy"]) for a, b in zip(near["prompts"], far["prompts"])]
    assert all(long[: len(short)] == short for long, short in pairs)
    assert any(len(short) < len(long) for long, short in pairs)


def test_texts_come_back_from_the_file_as_they_were(tmp_path: Path) -> None:
    values = {"texts": [{"text": '}, {"a": 1}, {\n\u2028\x00"'}, {"text": "é"}], "n": 1}
    write_lines(tmp_path / "vectors.json", values)
    assert read(tmp_path / "vectors.json") == values


@pytest.mark.parametrize("top_k", [0, 1, 7, 5000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.01])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 3.0])
def test_tokens_come_as_often_as_from_the_engine(
    temperature: float, top_p: float, top_k: int
) -> None:
    """The order of the tokens differs, so a draw gives another one, but as many draws each."""
    logits = np.random.default_rng(1).normal(0, 2, 40).astype(np.float32)
    n = 1000
    draws = (np.arange(n) + 0.5) / n
    ours = Counter(choose(logits, Choice(temperature, top_k, top_p, draw)) for draw in draws)
    settings = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    rows = np.broadcast_to(logits, (n, len(logits)))
    engine = Counter(sample_rows(rows, settings, draws, [[]] * n).tolist())
    assert all(abs(ours[i] - engine[i]) <= 2 for i in set(ours) | set(engine))


def test_a_sampling_graph_of_other_weights_is_noticed(kit: Path) -> None:
    config = load_bundle(NANO).config
    right = compare_sampling(kit / "onnx/model.onnx", kit / "onnx/sampling.onnx", config)
    wrong = compare_sampling(kit / "onnx/model.onnx", kit / "onnx/sampling_q4.onnx", config)
    assert right.passed and right.cases > 30 and not wrong.passed


def test_numbers_at_the_ends_choose_the_first_and_the_last_token(kit: Path) -> None:
    """A random number may be rounded to 1, and top_p to 0: there is always a token."""
    config = load_bundle(NANO).config
    session = ort.InferenceSession(kit / "onnx/sampling.onnx")
    portable = ort.InferenceSession(kit / "onnx/model.onnx")
    feeds = decoder_feeds(np.array([[5, 8, 13]] * 3), no_cache(config, 3))
    order = np.argsort(-portable.run(["logits"], feeds)[0][0, -1], kind="stable")

    def chosen(choice: Choice, draws: list[float]) -> list[int]:
        [ids] = session.run(["next_ids"], feeds | sampling_feeds(choice, draws))
        return ids[:, 0].tolist()

    first = order[0]
    assert chosen(Choice(0, 0, 1, 0), [0.0, 0.5, 0.999]) == [first] * 3
    assert chosen(Choice(5, 0, 0, 0), [0.0, 0.5, 0.999]) == [first] * 3
    assert chosen(Choice(100, 2, 1, 0), [0.0, 0.9999, 1.0]) == [first, order[1], first]
    assert chosen(Choice(1, 10**9, 1, 0), [0.0, 0.0, 0.0]) == [first] * 3


def test_a_base_models_prompts_are_texts() -> None:
    bundle = load_bundle(NANO)
    base = replace(bundle, facts=replace(bundle.facts, chat=False))
    prompts = make_prompts(base)
    opening = text_opening(bundle.tokenizer)
    assert len(prompts) == 20
    assert all(p["ids"] == [*opening, *bundle.tokenizer.encode(p["text"])] for p in prompts)


def test_a_folder_without_the_portable_graph_is_refused(tmp_path: Path, refused: Refused) -> None:
    said = refused(main, "embed", default_model(), "--out", tmp_path / "kit")
    assert "has no onnx/model.onnx" in said and "export the run again" in said
    assert not list(tmp_path.iterdir())


def test_a_translator_is_refused(
    translation_folder: Path, tmp_path: Path, refused: Refused
) -> None:
    said = refused(main, "embed", translation_folder, "--out", tmp_path / "kit")
    assert "translation model" in said and not list(tmp_path.iterdir())


def test_only_a_kit_is_replaced_and_never_a_model_folder(
    kit: Path, tmp_path: Path, refused: Refused
) -> None:
    assert "exists and is not a kit" in refused(main, "embed", kit, "--out", NANO)
    assert (NANO / "model.safetensors").is_file()
    assert main(["embed", str(NANO), "--out", str(kit)]) == 0
    (kit / "mine.txt").write_text("mine")
    assert "files of yours (mine.txt)" in refused(main, "embed", NANO, "--out", kit)
    (kit / "mine.txt").unlink()
    page = (kit / "CONTRACT.md").read_bytes()
    (kit / "CONTRACT.md").write_bytes(page + b"\nMine.\n")
    assert "CONTRACT.md was edited since" in refused(main, "embed", NANO, "--out", kit)
    (kit / "CONTRACT.md").write_bytes(page)


def test_a_kit_whose_graph_chooses_otherwise_is_not_written(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit_write, "compare_sampling", lambda *_: Check("made up", 1, 0, 1.0))
    said = refused(main, "embed", NANO, "--out", tmp_path / "kit")
    assert "no kit was written" in said and not list(tmp_path.iterdir())
