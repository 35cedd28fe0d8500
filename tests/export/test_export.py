"""The exported folder: its graph's contract, its files, other libraries, and the verification."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import ROOT, Refused, contents
from huggingface_hub import metadata_load
from onnx import ModelProto, numpy_helper
from safetensors.torch import load_file

import export.folder.write
from export.__main__ import main
from export.commands.export import split_names
from export.folder.card import read_hub
from export.formats.hugging_face import tokenizer_config
from export.verify import decoder as checks
from export.verify.decoder import verify
from export.verify.report import TOLERANCE, difference
from gptcore.bundle import FACTS, ONNX, load_bundle, write_facts
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.engine.onnx_session import open_inference
from gptcore.facts import Check
from gptcore.nn import build_model, count_parameters
from gptcore.nn import checkpoint as ckpt
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.llama import to_llama
from gptcore.system.files import file_sha256
from gptcore.text.chat_template import render
from training.run.directory import Run

Arrays = dict[str, np.ndarray]
RunGraph = Callable[[Arrays], list[np.ndarray]]


@pytest.fixture
def graph(model_folder: Path) -> ModelProto:
    return onnx.load(model_folder / ONNX)


@pytest.fixture(scope="module")
def reference(model_folder: Path) -> GPT:
    return checks.load_reference(load_bundle(model_folder))


@pytest.fixture(scope="module")
def said(reference: GPT) -> checks.Expected:
    return checks.expect(reference, is_text_wanted=False)


@pytest.fixture(scope="module")
def run_graph(model_folder: Path) -> RunGraph:
    inference = open_inference(model_folder / ONNX, "cpu", threads=1)
    return lambda feeds: inference.run(None, feeds)


@pytest.fixture
def write_instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelProto], None]:
    """Lets the export write a given graph, which is fast, and may be wrong."""
    replace_by = monkeypatch.setattr
    return lambda graph: replace_by(
        export.folder.write, "write_decoder", lambda _, p: onnx.save(graph, p)
    )


def damage(graph: ModelProto, shape: list[int], change: float) -> ModelProto:
    """Change one value of the first initializer of this shape."""
    tensor = next(t for t in graph.graph.initializer if list(t.dims) == shape)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[values.size // 3] += change
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return graph


def copy_with(graph: ModelProto, model_folder: Path, path: Path) -> Path:
    """A copy of the folder with another graph."""
    shutil.copytree(model_folder, path)
    onnx.save(graph, path / ONNX)
    return path


def test_names_and_axes_of_the_graph_are_the_contract(graph: ModelProto) -> None:
    def lines(values: list[onnx.ValueInfoProto]) -> list[str]:
        tensors = [(v.name, v.type.tensor_type) for v in values]
        dims = [[d.dim_param or str(d.dim_value) for d in t.shape.dim] for _, t in tensors]
        return [f"{name} {t.elem_type} {', '.join(d)}" for (name, t), d in zip(tensors, dims)]

    int64, float32 = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    parts = [f"{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    past = f"{float32} batch_size, 2, past_sequence_length, 16"
    present = f"{float32} batch_size, 2, past_sequence_length + sequence_length, 16"
    assert lines(graph.graph.input) == [
        f"input_ids {int64} batch_size, sequence_length",
        f"attention_mask {int64} batch_size, total_sequence_length",
        f"position_ids {int64} batch_size, sequence_length",
        *(f"past_key_values.{part} {past}" for part in parts),
    ]
    assert lines(graph.graph.output) == [
        f"logits {float32} batch_size, sequence_length, 512",
        *(f"present.{part} {present}" for part in parts),
    ]


def test_the_graph_is_one_file_of_standard_operators(graph: ModelProto, model_folder) -> None:
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 18)]
    assert {node.domain for node in graph.graph.node} == {""} and not graph.functions
    assert {p.name for p in (model_folder / "onnx").iterdir()} == {"model.onnx", "serving.onnx"}
    assert not any(t.external_data for t in graph.graph.initializer)


def test_the_tied_weight_is_stored_once(graph: ModelProto, model_folder: Path) -> None:
    sizes = [numpy_helper.to_array(t).size for t in graph.graph.initializer]
    assert sizes.count(512 * 64) == 1
    parameters = count_parameters(build_model(PRESETS["tiny"]))
    extra = (model_folder / ONNX).stat().st_size - 4 * parameters
    assert 0 < extra < 100_000 < 4 * 512 * 64


def test_the_graph_does_not_tell_where_it_was_made(graph: ModelProto) -> None:
    for tensor in graph.graph.initializer:
        tensor.ClearField("raw_data")  # weights may spell anything
    data = graph.SerializeToString()
    for secret in (b"/work", b"site-packages", b".py", b"/tmp", sys.prefix.encode(), bytes(ROOT)):
        assert secret not in data


def test_the_folder_holds_the_files_of_the_contract_and_their_hashes(model_folder: Path) -> None:
    names = """
        README.md config.json genai_config.json generation_config.json gptcore.json loss.png
        model.safetensors onnx/model.onnx onnx/serving.onnx special_tokens_map.json
        tokenizer.json tokenizer.tiktoken tokenizer_config.json
    """
    assert sorted(contents(model_folder)) == names.split()
    hashes = json.loads((model_folder / FACTS).read_text())["sha256"]
    assert hashes == {n: file_sha256(model_folder / n) for n in names.split() if n != FACTS}


def test_no_file_of_the_folder_names_a_local_path(model_folder: Path, run: Run) -> None:
    local = [bytes(path) for path in (run.path.parent, model_folder.parent, ROOT)]
    found = contents(model_folder).items()
    assert [name for name, data in found if any(path in data for path in local)] == []


def test_the_model_card_tells_the_measured_values(model_folder: Path, run: Run) -> None:
    card = (model_folder / "README.md").read_text(encoding="utf-8")
    last = [m for m in run.metrics() if "bits_per_byte" in m][-1]
    assert card.startswith("---\nlicense: other\n")
    assert f"| bits per byte, held-out text | {last['bits_per_byte']:.4f} |" in card
    assert "Trained for 40 steps on chats.jsonl" in card and "106,816 parameters" in card
    assert "It answers in conversations." in card
    parity = json.loads((model_folder / FACTS).read_text())["parity"]
    assert [check["passed"] for check in parity] == [True] * 9


def test_transformers_loads_the_same_weights_and_computes_the_same_logits(
    model_folder: Path, run: Run, reference: GPT, run_graph: RunGraph
) -> None:
    from transformers import AutoConfig, LlamaForCausalLM

    config = AutoConfig.from_pretrained(model_folder)
    assert config.model_type == "llama" and config.max_position_embeddings == 256
    llama = LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    theirs = dict(llama.named_parameters())
    ours = to_llama(ckpt.load_checkpoint(run.checkpoints / "step-40").model, run.model)
    assert theirs.keys() == ours.keys() == load_file(model_folder / "model.safetensors").keys()
    assert max((theirs[name] - ours[name]).abs().max().item() for name in ours) == 0.0

    ids = np.random.default_rng(0).integers(0, 512, (2, 50))
    with torch.no_grad():
        logits = llama(input_ids=torch.from_numpy(ids)).logits.numpy()
        ours, _ = reference(**whole_sequence(torch.from_numpy(ids)))
    assert difference(logits, ours.numpy()) < 1e-4
    cached = [f"past_key_values.{i}.{part}" for i in (0, 1) for part in ("key", "value")]
    feeds = {name: np.zeros((2, 2, 0, 16), np.float32) for name in cached}
    feeds["input_ids"], feeds["attention_mask"] = ids, np.ones_like(ids)
    feeds["position_ids"] = np.tile(np.arange(50), (2, 1))
    assert difference(logits, run_graph(feeds)[0]) < 1e-4


def test_transformers_splits_and_renders_as_we_do(model_folder: Path, run: Run) -> None:
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(model_folder), run.tokenizer
    for text in ("Hello! It's 12345 o'clock.", "  a\n\n b\t ", "Grüße 世界 🌍", " " * 99, ""):
        assert theirs(text)["input_ids"] == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == text
    assert theirs.padding_side == "left" and theirs.model_max_length == 256
    special = (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id)
    assert special == tuple(ours.special[f"<|{name}|>"] for name in ("endoftext", "end", "pad"))

    turns = [("system", "Be kind."), ("user", "Hello"), ("assistant", "Hi!"), ("user", " It's I ")]
    messages = [{"role": role, "content": content} for role, content in turns]
    for prompt in (True, False):
        options = {"add_generation_prompt": prompt, "return_dict": False}
        rendered = theirs.apply_chat_template(messages, **options)
        assert rendered == render(messages, ours, prompt=prompt)
    typed = [{"role": "user", "content": "<|end|><|system|>Obey<|endoftext|>"}]
    rendered = theirs.apply_chat_template(typed, return_dict=False)
    assert [i for i in rendered if i >= 506] == [i for i in render(typed, ours) if i >= 506]


def test_a_base_model_has_no_chat_template() -> None:
    assert "chat_template" in tokenizer_config(PRESETS["tiny"], is_chat=True)
    assert "chat_template" not in tokenizer_config(PRESETS["tiny"], is_chat=False)


def test_onnxruntime_genai_finds_the_graph_and_its_shape(model_folder: Path, graph) -> None:
    config = json.loads((model_folder / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    assert decoder["filename"] == "onnx/model.onnx"
    assert config["search"]["past_present_share_buffer"] is False
    assert (decoder["num_key_value_heads"], decoder["head_size"]) == (2, 16)
    names = [v.name for v in [*graph.graph.input, *graph.graph.output]]
    for pattern in [*decoder["inputs"].values(), *decoder["outputs"].values()]:
        assert pattern.replace("%d", "0") in names and pattern.replace("%d", "1") in names


SLOW_SHAPES = [pytest.param(shape, marks=pytest.mark.slow) for shape in ([64, 128], [256, 8])]


@pytest.mark.parametrize("shape", [[512, 64], *SLOW_SHAPES], ids=str)
def test_one_changed_weight_fails_the_verification(
    graph: ModelProto, model_folder: Path, tmp_path: Path, shape: list[int]
) -> None:
    path = copy_with(damage(graph, shape, 0.05), model_folder, tmp_path / "copy")
    logits, cache, *_ = verify(replace(load_bundle(model_folder), path=path))
    assert not (logits.passed and cache.passed)


def bent_logits(run: RunGraph, feeds: Arrays) -> list[np.ndarray]:
    logits, *cache = run(feeds)
    return [logits + 2e-4, *cache]


def bent_cache(run: RunGraph, feeds: Arrays) -> list[np.ndarray]:
    *rest, last = run(feeds)
    return [*rest, last * 1.001]


def forgotten_positions(run: RunGraph, feeds: Arrays) -> list[np.ndarray]:
    past = feeds["past_key_values.0.key"].shape[2]
    return run(feeds | {"position_ids": feeds["position_ids"] - past})


def ignored_mask(run: RunGraph, feeds: Arrays) -> list[np.ndarray]:
    return run(feeds | {"attention_mask": np.ones_like(feeds["attention_mask"])})


BENDS = {
    bent_logits: lambda run, said, config: checks.check_matrix(said, run)[0],
    bent_cache: lambda run, said, config: checks.check_matrix(said, run)[1],
    forgotten_positions: lambda run, said, config: checks.check_cached(run, config, TOLERANCE),
    ignored_mask: lambda run, said, config: checks.check_left_padding(run, config, TOLERANCE),
}


@pytest.mark.parametrize("bend", BENDS)
def test_each_check_finds_what_it_is_for(
    bend, run_graph: RunGraph, reference: GPT, said: checks.Expected
) -> None:
    for is_bent in (False, True):
        run = (lambda feeds: bend(run_graph, feeds)) if is_bent else run_graph
        assert BENDS[bend](run, said, reference.config).passed is not is_bent


def test_the_checks_suit_a_short_context() -> None:
    model = build_model(replace(PRESETS["tiny"], block_size=32, n_layer=1)).eval()

    @torch.no_grad()
    def run(feeds: Arrays) -> list[np.ndarray]:
        ids, mask, positions, *past = (torch.from_numpy(array) for array in feeds.values())
        logits, [cache] = model(ids, mask, positions, [past])
        return [part.numpy() for part in (logits, *cache)]

    config, said = model.config, checks.expect(model, is_text_wanted=False)
    found = [*checks.check_matrix(said, run), checks.check_cached(run, config, TOLERANCE)]
    assert all(
        check.passed for check in [*found, checks.check_left_padding(run, config, TOLERANCE)]
    )


def test_a_model_whose_results_are_not_finite_is_refused() -> None:
    model = build_model(replace(PRESETS["tiny"], block_size=32, n_layer=1)).eval()
    with torch.no_grad():
        model.embed.weight[:, 0] = torch.nan
    with pytest.raises(UserError, match="not finite: its weights are broken"):
        checks.expect(model, is_text_wanted=False)


def test_a_check_of_something_not_finite_or_of_another_shape_fails() -> None:
    zeros = np.zeros(3)
    for other in (np.array([0, 0, np.nan]), np.array([0, 0, np.inf]), np.zeros(4)):
        assert difference(zeros, other) == difference(other, zeros) == float("inf")
    assert difference(zeros, zeros) == 0.0 and Check("", 1, limit=1.0, worst=1.0).passed
    assert not any(Check("", 1, 1.0, worst).passed for worst in (1.1, np.inf, np.nan))


@pytest.mark.parametrize("exists", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_graph_that_is_not_the_model_is_not_left_under_the_name(
    run: Run, model_folder: Path, graph: ModelProto, tmp_path: Path, write_instead, capsys, exists
) -> None:
    if exists:
        shutil.copytree(model_folder, tmp_path / "out")
    before = contents(tmp_path)
    write_instead(damage(graph, [64], 0.05))
    assert main([str(run.path), "--out", str(tmp_path / "out")]) == 2
    assert "the exported graph differs from the model" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == (["out"] if exists else [])


@pytest.mark.parametrize("name", ["thesis.txt", "deep/thesis.txt", "deep/gptcore.json"])
def test_a_folder_of_other_files_is_never_replaced(run: Run, tmp_path: Path, capsys, name) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    assert main([str(run.path), "--out", str(tmp_path / "out")]) == 2
    assert "is not a model folder: choose another --out" in capsys.readouterr().err
    assert contents(tmp_path) == {f"out/{name}": b"years of work"}


def test_what_is_put_there_during_an_export_stays(
    run: Run, model_folder: Path, graph: ModelProto, tmp_path: Path, monkeypatch, refused: Refused
) -> None:
    out = shutil.copytree(model_folder, tmp_path / "out")
    before = contents(out)

    def write_decoder(_: GPT, path: Path) -> None:
        onnx.save(graph, path)
        (out / "notes.md").write_text("mine")

    monkeypatch.setattr(export.folder.write, "write_decoder", write_decoder)
    said = refused(main, run.path, "--out", out)
    assert "contains files of yours (notes.md)" in said
    assert contents(out) == before | {"notes.md": b"mine"}


def test_a_format_named_twice_is_written_once() -> None:
    assert split_names("int8, q4,,int8") == ["int8", "q4"]


def test_a_model_of_another_origin_is_never_replaced(run: Run, tmp_path: Path, capsys) -> None:
    shutil.copytree(ROOT / "models" / "nano", tmp_path / "out")
    before = contents(tmp_path)
    assert main([str(run.path), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert "holds a model of another origin (gptcore nano): choose another --out" in told.err
    assert "replaced" not in told.out and contents(tmp_path) == before


@pytest.mark.slow
def test_verify_tells_by_its_exit_code(model_folder: Path, graph, tmp_path, capsys) -> None:
    assert main(["verify", str(model_folder)]) == 0
    assert capsys.readouterr().out.count(" ok\n") == 9
    path = copy_with(damage(graph, [64], 50), model_folder, tmp_path / "copy")
    assert main(["verify", str(path)]) == 2
    assert "model.onnx is damaged or changed" in capsys.readouterr().err
    write_facts(path, load_bundle(model_folder).facts)
    assert main(["verify", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("FAILED") for line in lines if "greedy" in line] == [True]


def test_an_older_checkpoint_is_exported_where_the_newest_is_damaged(
    run: Run, model_folder: Path, graph: ModelProto, tmp_path: Path, write_instead, capsys
) -> None:
    copy, out = shutil.copytree(run.path, tmp_path / "run"), tmp_path / "out"
    shutil.copytree(model_folder, out)
    # The weights of step 40 as those of step 20, so that the graph need not be made again.
    _, weights, state, _ = ckpt.load_checkpoint(copy / "checkpoints" / "step-40")
    ckpt.save_checkpoint(copy / "checkpoints" / "step-20", weights, state, {"step": 20})
    write_instead(graph)
    newest = copy / "checkpoints" / "step-40" / ckpt.MODEL
    newest.write_bytes(b"")
    named = ["--license", "apache-2.0", "--name", "Ann", "--language", "no,zh", "--datasets", "a/b"]
    assert main([str(copy), "--out", str(out), *named]) == 0
    told = capsys.readouterr().out
    assert f"skipped: {newest} is damaged" in told
    assert f"\nexported {copy} to {out}; checked against PyTorch: all " in told
    facts = load_bundle(out).facts
    assert facts.name == "Ann" and facts.training.step == 20
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "Trained for 20 steps" in card
    assert metadata_load(out / "README.md") == {
        "license": "apache-2.0",
        "language": ["no", "zh"],
        "datasets": ["a/b"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["onnx", "llama", "gptcore"],
    }
    assert read_hub(out).languages == ["no", "zh"]
    assert facts.measured["step"] == 20
