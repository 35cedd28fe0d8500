"""The folder of a translation model, and the textbook systems through the real commands."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import ROOT
from onnx import ModelProto, numpy_helper
from safetensors.torch import load_file, save_file
from trained import change_vectors, made_up_pairs, set_options

from export.__main__ import main as export_main
from export.formats.translation_to_onnx import write_translator
from export.formats.weights import Weights, write_weights
from export.verify.translation import load_reference, verify_translation
from gptcore.bundle import (
    CARD,
    DECODER,
    ENCODER,
    FACTS,
    INDEX,
    INSPECT,
    load_bundle,
    load_translation_bundle,
    read_facts,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.config import TRANSLATORS
from gptcore.engine.generate import complete
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model
from gptcore.nn import build_model
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.onnx import OnnxTranslator, load_translator
from gptcore.translation.search import translate
from training.__main__ import main as training_main
from training.data.pairs.sentences import write_pairs

GRAPHS = ["encoder_model", "decoder_with_past_model", "inspect"]


@pytest.fixture(scope="module")
def graphs(translation_folder: Path) -> dict[str, ModelProto]:
    return {name: onnx.load(translation_folder / "onnx" / f"{name}.onnx") for name in GRAPHS}


@pytest.fixture
def copy(translation_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(translation_folder, tmp_path / "copy")


def lines(values: list[onnx.ValueInfoProto]) -> list[str]:
    tensors = [(v.name, v.type.tensor_type) for v in values]
    dims = [[d.dim_param or str(d.dim_value) for d in t.shape.dim] for _, t in tensors]
    return [f"{name} {t.elem_type} {', '.join(d)}" for (name, t), d in zip(tensors, dims)]


INT64, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
PARTS = [(layer, part) for layer in (0, 1) for part in ("key", "value")]


def test_names_and_axes_of_the_encoder_are_the_contract(graphs: dict[str, ModelProto]) -> None:
    graph = graphs["encoder_model"].graph
    source = "batch_size, encoder_sequence_length"
    assert lines(graph.input) == [
        f"input_ids {INT64} {source}",
        f"attention_mask {INT64} {source}",
    ]
    assert lines(graph.output) == [
        f"present.{n}.encoder.{part} {FLOAT} batch_size, 2, encoder_sequence_length, 16"
        for n, part in PARTS
    ]


def test_names_and_axes_of_the_decoder_are_the_contract(graphs: dict[str, ModelProto]) -> None:
    graph = graphs["decoder_with_past_model"].graph
    past = f"{FLOAT} batch_size, 2, past_sequence_length, 16"
    present = f"{FLOAT} batch_size, 2, past_sequence_length + sequence_length, 16"
    memory = f"{FLOAT} batch_size, 2, encoder_sequence_length, 16"
    assert lines(graph.input) == [
        f"input_ids {INT64} batch_size, sequence_length",
        f"attention_mask {INT64} batch_size, total_sequence_length",
        f"position_ids {INT64} batch_size, sequence_length",
        f"encoder_attention_mask {INT64} batch_size, encoder_sequence_length",
        *(f"past_key_values.{n}.decoder.{part} {past}" for n, part in PARTS),
        *(f"past_key_values.{n}.encoder.{part} {memory}" for n, part in PARTS),
    ]
    assert lines(graph.output) == [
        f"logits {FLOAT} batch_size, sequence_length, 320",
        *(f"present.{n}.decoder.{part} {present}" for n, part in PARTS),
    ]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_one_file_of_standard_operators_without_a_trace_of_this_machine(
    name: str, translation_folder: Path
) -> None:
    graph = onnx.load(translation_folder / "onnx" / f"{name}.onnx")
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 18)]
    assert graph.ir_version == 8
    assert {node.domain for node in graph.graph.node} == {""} and not graph.functions
    assert not any(t.external_data for t in graph.graph.initializer)
    body = graph.graph
    parts = [*body.node, *body.initializer, *body.input, *body.output, *body.value_info]
    assert [p.name for p in (graph, body, *parts) if p.metadata_props or p.doc_string] == []
    for tensor in body.initializer:
        tensor.ClearField("raw_data")  # weights may spell anything
    data = graph.SerializeToString()
    for secret in (b"/work", b"site-packages", b".py", b"/tmp", sys.prefix.encode(), bytes(ROOT)):
        assert secret not in data


def test_nothing_in_the_folder_tells_where_it_was_made(translation_folder: Path) -> None:
    names = {p.name for p in (translation_folder / "onnx").iterdir()}
    assert names == {f"{name}.onnx" for name in GRAPHS}
    for name in (FACTS, "README.md"):
        text = (translation_folder / name).read_text(encoding="utf-8")
        assert not any(secret in text for secret in ("/tmp", "/work", "pytest"))


def floats(graph: ModelProto) -> list[np.ndarray]:
    found = [numpy_helper.to_array(t) for t in graph.graph.initializer]
    return [array for array in found if array.dtype == np.float32 and array.ndim == 2]


def holds(arrays: list[np.ndarray], matrix: torch.Tensor) -> bool:
    matrix = matrix.numpy()
    return any(
        a.shape == m.shape and np.array_equal(a, m) for a in arrays for m in (matrix, matrix.T)
    )


def test_each_graph_holds_its_own_weights_and_the_sources_keys_are_made_in_the_encoder(
    graphs: dict[str, ModelProto], translation_folder: Path
) -> None:
    weights = load_file(translation_folder / "model.safetensors")
    encoder, decoder = floats(graphs["encoder_model"]), floats(graphs["decoder_with_past_model"])
    for name, matrix in weights.items():
        if matrix.dim() == 2:
            of_encoder = name.startswith(("source_embed", "encoder_blocks")) or ".kv." in name
            assert holds(encoder, matrix) is of_encoder, name
            assert holds(decoder, matrix) is not of_encoder, name


def test_the_encoder_runs_once_for_a_translation(translation_folder: Path) -> None:
    translator = load_translator(translation_folder, threads=1)
    inference, n_runs = translator.encoder, 0
    decoder, masks = translator.decoder, []

    class Counting:
        def get_outputs(self) -> list:
            return inference.get_outputs()

        def run(self, *arguments: object) -> list:
            nonlocal n_runs
            n_runs += 1
            return inference.run(*arguments)

    class Watching:
        def get_inputs(self) -> list:
            return decoder.get_inputs()

        def run(self, outputs: None, feeds: dict[str, np.ndarray]) -> list:
            masks.append(feeds["encoder_attention_mask"])
            return decoder.run(outputs, feeds)

    translator.encoder, translator.decoder = Counting(), Watching()
    assert len(translate(translator, "睡觉狗红三。", beams=3).target_ids) > 5 and n_runs == 1
    same = [one is other for one, other in pairwise(masks) if len(one) == len(other)]
    assert len(same) > 3 and all(same), "what is read of the source is not copied for every token"


def test_the_folder_is_verified_again_by_the_command(
    translation_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_main(["verify", str(translation_folder)]) == 0
    assert capsys.readouterr().out.count(" ok\n") == 7
    assert load_translation_bundle(translation_folder).facts.parity[0].passed is True


def change_graph(folder: Path, name: str, choose: Callable[[np.ndarray], bool], to: float) -> None:
    """Set the value nearest to 0 of the first chosen tensor."""
    path = folder / "onnx" / name
    graph = onnx.load(path)
    tensor = next(t for t in graph.graph.initializer if choose(numpy_helper.to_array(t)))
    values = numpy_helper.to_array(tensor).copy()
    values.flat[values.size - 1] = to
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(graph, path)


def shaped(*shape: int) -> Callable[[np.ndarray], bool]:
    return lambda array: array.shape == shape


@pytest.mark.parametrize(
    ("name", "choose", "to"),
    [
        (ENCODER, shaped(64, 64), 3.0),
        (ENCODER, shaped(320, 64), 3.0),
        (ENCODER, shaped(32, 8), 0.0),
        (DECODER, shaped(64, 64), 3.0),
        (DECODER, shaped(320, 64), float("nan")),
    ],
    ids=["encoder", "source embedding", "source position", "decoder", "NaN"],
)
def test_a_changed_graph_does_not_pass(
    copy: Path, name: str, choose: Callable, to: float, capsys: pytest.CaptureFixture[str]
) -> None:
    change_graph(copy, name, choose, to)
    write_facts(copy, read_facts(copy))
    assert export_main(["verify", str(copy)]) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize("to", [3.0, float("nan")])
@pytest.mark.parametrize("name", ["encoder_blocks.0.attention.out", "blocks.1.cross_attention.kv"])
def test_changed_weights_do_not_pass(copy: Path, name: str, to: float) -> None:
    weights = load_file(copy / "model.safetensors")
    weights[f"{name}.weight"][1, 2] = to
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    write_facts(copy, read_facts(copy))
    assert not all(check.passed for check in verify_translation(load_translation_bundle(copy)))


def test_a_folder_with_a_damaged_or_missing_file_is_refused(copy: Path) -> None:
    names = [name for name in read_facts(copy).sha256 if name != CARD]  # which may be edited
    assert "source_tokenizer/tokenizer.tiktoken" in names and f"onnx/{ENCODER}" in names
    for name in names:
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[:-1])
        with pytest.raises(UserError, match=f"{name} is damaged or changed"):
            load_translation_bundle(copy)
        (copy / name).unlink()
        with pytest.raises(UserError, match=f"{name} is missing: export"):
            load_translator(copy)
        (copy / name).write_bytes(data)
    load_translation_bundle(copy)


@pytest.mark.parametrize(
    "name", [f"onnx/{ENCODER}", f"onnx/{DECODER}", "source_tokenizer/tokenizer.tiktoken"]
)
def test_a_folder_that_never_listed_a_file_is_refused(copy: Path, name: str) -> None:
    (copy / name).unlink()
    write_facts(copy, read_facts(copy))
    with pytest.raises(UserError, match=Path(name).name):
        load_translator(copy)


def test_tokenizers_and_graphs_of_other_models_are_refused(copy: Path, tokenizer) -> None:
    facts = read_facts(copy)
    tokenizer.save(copy / "source_tokenizer")
    write_facts(copy, facts)
    with pytest.raises(UserError, match="source_tokenizer: the tokenizer has 512 tokens and the"):
        load_translation_bundle(copy)


def test_a_translator_is_no_decoder_and_a_decoder_no_translator(
    translation_folder: Path, model_folder: Path
) -> None:
    with pytest.raises(UserError, match=r"is a translation model: give it to app\.py --translate"):
        load_bundle(translation_folder)
    with pytest.raises(UserError, match=r"is not a translation model: give it to app\.py --model"):
        load_translation_bundle(model_folder)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_score_compares_both_runtimes_and_knows_which_column_the_model_reads(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_reversed: bool
) -> None:
    pairs = made_up_pairs(612)[600:]
    if is_reversed:
        pairs = [(b, a) for a, b in pairs]
        facts = read_facts(copy)
        data = replace(facts.training.data, reverse=True)
        write_facts(copy, replace(facts, training=replace(facts.training, data=data)))
    write_pairs(pairs, tmp_path / "pairs.tsv")
    words = [str(copy), str(tmp_path / "pairs.tsv"), "--samples", "3", "--untrained"]
    assert export_main(["score", *words]) == 0
    said = capsys.readouterr().out
    assert "ONNX Runtime and PyTorch differ in 0 sentences" in said
    assert said.count(" -> ") == 3
    chrf = [float(line.split()[line.split().index("chrF") + 1]) for line in said.splitlines()[:3]]
    assert chrf[0] == chrf[1] > 80 > 30 > chrf[2]


def test_a_source_too_long_is_left_out_of_the_score_and_the_samples_stay_in_step(
    translation_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = made_up_pairs(605)[600:]
    write_pairs([("红" * 40, "red"), *pairs], tmp_path / "pairs.tsv")
    assert export_main(["score", str(translation_folder), str(tmp_path / "pairs.tsv")]) == 0
    said = capsys.readouterr().out
    assert "left out 1 source of more than 32 tokens" in said and "5 sentences" in said
    model = load_translator(translation_folder, threads=1)
    for source, target in pairs:
        assert f"  {source} -> {translate(model, source).text}   ({target})\n" in said


TINY = {
    "source_vocab_size": 320,
    "vocab_size": 320,
    "block_size": 20,
    "n_encoder_layer": 1,
    "n_layer": 1,
    "n_embd": 32,
    "n_inner": 96,
}


@pytest.mark.slow
def test_a_textbook_translator_trains_exports_and_verifies(
    pairs_file: Path, tmp_path: Path
) -> None:
    write_pairs(made_up_pairs(602)[600:], tmp_path / "held_out.tsv")
    words = [str(pairs_file), "--validation", str(tmp_path / "held_out.tsv")]
    options = set_options(**TINY, steps=3, batch_size=32, micro_batch_size=32)
    out, folder = str(tmp_path / "run"), tmp_path / "model"
    words += ["--preset", "original", *options, "--out", out]  # one table for all tokens
    assert training_main(["translate", *words]) == 0
    assert export_main([out, "--out", str(folder)]) == 0
    model = load_translator(folder, threads=1)
    assert all(check.passed for check in model.bundle.facts.parity)
    assert not (folder / "config.json").exists()
    assert isinstance(translate(model, "跑猫红三。", beams=2).text, str)
    n = sum(p.numel() for p in load_reference(model.bundle).parameters())
    assert model.bundle.facts.parameters == n


def test_weights_in_several_files_are_read_back(
    translation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = load_translation_bundle(translation_folder)
    monkeypatch.setattr("export.formats.weights.SHARD_BYTES", 100_000)
    write_weights(Weights(bundle.path).items(), tmp_path)
    assert (tmp_path / INDEX).exists()
    one, two = (load_reference(b).state_dict() for b in (bundle, replace(bundle, path=tmp_path)))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_the_graphs_of_another_textbook_translator_equal_pytorch(
    translator: OnnxTranslator, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = build_model(replace(TRANSLATORS["handbook"], **TINY))
    change_vectors(network)
    (tmp_path / "onnx").mkdir()
    write_translator(network, tmp_path / "onnx")
    write_weights(network.named_parameters(), tmp_path)
    bundle = replace(translator.bundle, path=tmp_path, config=network.config)
    assert all(check.passed for check in verify_translation(bundle))


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["wayland_post", "annotated"])
def test_a_textbook_decoder_trains_exports_verifies_and_writes(
    preset: str, pairs_file: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    sentences = [english for _, english in made_up_pairs(600)]
    text.write_text("\n".join(sentences), encoding="utf-8")
    Tokenizer.train(sentences, 290).save(tmp_path / "tokenizer")
    sizes = {"block_size": 16, "n_layer": 1, "n_embd": 32, "n_inner": 48, "batch_size": 4}
    options = set_options(**sizes, micro_batch_size=4, steps=5)
    words = ["--tokenizer", str(tmp_path / "tokenizer"), "--preset", preset, *options]
    out, folder = str(tmp_path / "run"), tmp_path / "model"
    assert training_main([str(text), "--out", out, *words]) == 0
    assert export_main([out, "--out", str(folder)]) == 0  # which verifies it
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert names == {
        *("gptcore.json", "README.md", "loss.png", "model.safetensors", "tokenizer.tiktoken"),
        "onnx/model.onnx",
        *([] if preset == "annotated" else ["onnx/serving.onnx"]),  # its heads are of size 4
    }
    card = (folder / "README.md").read_text()
    assert "llama" not in card.lower() and "transformers.js" not in card
    facts = json.loads((folder / FACTS).read_text())
    assert facts["config"]["vocab_size"] == 290 and all(c["passed"] for c in facts["parity"])
    model = load_model(folder, threads=1)
    for sampling in (
        Sampling(temperature=0.0),
        Sampling(temperature=0.9, top_p=0.8, seed=3),
    ):
        pieces = list(complete(model, "Two red", sampling, max_tokens=6))
        assert pieces and "".join(p.text for p in pieces)
        again = list(complete(model, "Two red", sampling, max_tokens=6))
        assert "".join(p.text for p in again) == "".join(p.text for p in pieces)


def test_a_translator_is_loaded_with_its_own_tokenizers(translator: OnnxTranslator) -> None:
    assert translator.provider == "CPUExecutionProvider"
    assert translator.source_tokenizer.sha256 != translator.tokenizer.sha256
    assert INSPECT in translator.bundle.facts.sha256
