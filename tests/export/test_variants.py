"""Smaller files of a model: what they hold, what is measured of them, which one runs."""

import math
import re
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from conftest import TINY, Refused
from onnx import TensorProto, helper, numpy_helper
from trained import without_serving

import gptcore.model
import gptcore.system.cores as cores
from export.__main__ import main
from export.folder import variants
from export.folder.card import Hub, write_card
from export.folder.variants import (
    FLOPS,
    Measured,
    add_variants,
    calibration_rows,
    compared_rows,
    measure,
    text_rows,
)
from export.folder.write import Target, measured, write_verified
from export.formats.to_onnx import write_decoder
from export.quantize.embedding import HEAD
from export.quantize.save import FORMATS, keep_inputs, quantize, save_quantized
from gptcore.__main__ import main as app_main
from gptcore.bundle import SERVING, VARIANTS, load_bundle, read_facts
from gptcore.checks import UserError
from gptcore.config import PRESETS, ModelConfig
from gptcore.engine import onnx_session
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling, log_softmax
from gptcore.facts import ModelFacts
from gptcore.model import OnnxModel, device_line, load_model
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from training.data.rows import IGNORED
from training.evaluation.bits_per_byte import Total
from training.run.directory import Run

ALL = ("fp32", *FORMATS)
ANY_PORT = ("--port", 0)  # the usual one may be taken, which would be said first


@pytest.fixture(scope="module")
def folder(all_variants: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(all_variants, tmp_path_factory.mktemp("models") / "variants"))


def test_the_files_have_the_names_that_transformers_js_looks_for(folder: Path) -> None:
    assert {p.name for p in (folder / "onnx").iterdir()} == {
        "model.onnx", "model_quantized.onnx", "model_int8.onnx", "model_q4.onnx",
        "model_fp16.onnx", "model_q4f16.onnx", *(Path(name).name for name in SERVING.values()),
    }  # fmt: skip
    assert list(load_bundle(folder).variants) == list(VARIANTS)


@pytest.mark.parametrize("variant", FORMATS)
def test_inputs_and_outputs_are_those_of_fp32(folder: Path, variant: str) -> None:
    first, second = (onnx.load(folder / VARIANTS[name]).graph for name in ("fp32", variant))
    assert [str(v) for v in first.input] == [str(v) for v in second.input]
    assert [str(v) for v in first.output] == [str(v) for v in second.output]


def test_every_file_declares_the_version_of_the_format_that_its_operators_need(
    folder: Path,
) -> None:
    """A newer one, such as torch's exporter declares, would shut out older runtimes."""
    for path in sorted((folder / "onnx").iterdir()):
        proto = onnx.load(path, load_external_data=False)
        assert (proto.ir_version, proto.opset_import[0].version) == (8, 18), path.name


@pytest.mark.parametrize("variant", ["fp16", "q4f16"])
def test_half_precision_computes_norms_in_32_bits(folder: Path, variant: str) -> None:
    """Their sums of squares would overflow; casts around the norm are where it is widened."""
    graph = onnx.load(folder / VARIANTS[variant]).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    casts = {n.output[0]: n.attribute[0].i for n in graph.node if n.op_type == "Cast"}
    norms = [node for node in graph.node if node.op_type == "Pow"]
    assert len(norms) == 5, "two of each layer, and the last"
    for node in norms:
        assert casts[node.input[0]] == types[node.input[1]] == TensorProto.FLOAT


@pytest.mark.parametrize("variant", ["fp16", "q4f16"])
def test_no_score_makes_the_mask_of_half_precision_infinite(folder: Path, variant: str) -> None:
    """It would be NaN where all keys are masked, as those of padding are."""
    tensors = onnx.load(folder / VARIANTS[variant]).graph.initializer
    constants = [numpy_helper.to_array(t) for t in tensors if t.data_type == TensorProto.FLOAT16]
    mask = np.float16(min(constant.min() for constant in constants))
    assert mask < -1e4 and np.isfinite(mask + np.float16(-1e4))


def test_tied_weights_are_stored_once_in_each(folder: Path) -> None:
    """The table is 512 x 64: a second copy, or one in fp32, would be seen in the size."""
    sizes = {name: (folder / VARIANTS[name]).stat().st_size for name in ALL}
    parameters = read_facts(folder).parameters
    overhead = sizes["fp32"] - 4 * parameters  # nodes, names, the table of positions
    assert sizes["fp16"] < 2 * parameters + overhead
    assert sizes["int8"] < 1.25 * parameters + overhead
    assert sizes["q8"] < 1.3 * parameters + overhead
    assert sizes["q4"] < sizes["q8"]
    for variant in ("int8", "q8", "q4"):
        for tensor in onnx.load(folder / VARIANTS[variant]).graph.initializer:
            assert list(tensor.dims) not in ([512, 64], [64, 512]) or tensor.data_type != 1


@pytest.mark.parametrize(("variant", "bits"), [("q8", 8), ("q4", 4)])
def test_products_in_blocks_are_of_integers_and_sensitive_ones_always_of_8_bits(
    folder: Path, variant: str, bits: int
) -> None:
    nodes = onnx.load(folder / VARIANTS[variant]).graph.node
    products = [node for node in nodes if node.op_type == "MatMulNBits"]
    found = [{a.name: a.i for a in node.attribute} for node in products]
    layer = [8, bits, bits, bits]  # queries, keys and values first
    assert [settings["bits"] for settings in found] == [*layer, *layer, 8]
    for node, settings in zip(products, found):
        assert settings["K"] % settings["block_size"] == 0, "no weights are padded"
        assert settings["accuracy_level"] == 4
        assert len(node.input) == (3 if settings["bits"] == 8 else 4), "zeros only of 4 bits"


@pytest.mark.parametrize(
    ("variant", "worst"),
    [("fp16", 0.005), ("int8", 0.04), ("q8", 0.005), ("q4", 0.04), ("q4f16", 0.04)],
)
def test_a_trained_model_loses_little(folder: Path, variant: str, worst: float) -> None:
    facts = read_facts(folder).variants
    assert facts[variant].bits_per_byte <= (1 + worst) * facts["fp32"].bits_per_byte


@pytest.mark.parametrize(
    ("variant", "best", "kept", "left_out"),
    [
        ("q8", 1.0, 1.004, 1.006),
        ("q4", 1.0, 1.039, 1.041),
        ("q8", 0.0001, 0.0006, 0.0009),  # where nearly all is known, a tiny loss is no reason
    ],
)
def test_each_format_has_a_limit_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variant: str, best: float, kept: float, left_out: float,
) -> None:  # fmt: skip
    """Losses made up on both sides of it, in nats; fp32 has the best."""
    copy, tokenizer = shutil.copytree(folder, tmp_path / "copy"), load_bundle(folder).tokenizer
    for nats, is_kept in ((kept, True), (left_out, False)):
        totals = {"fp32": best, variant: nats}
        found = {name: Measured(Total(n_bytes=1, nats=n)) for name, n in totals.items()}
        monkeypatch.setattr(variants, "measure", lambda *_, found=found: found)
        facts = add_variants(copy, [variant], [], tokenizer, force=False)
        assert (variant in facts) == is_kept


@pytest.mark.parametrize("variant", FORMATS)
def test_facts_and_card_tell_what_an_independent_measurement_finds(
    folder: Path, run: Run, variant: str
) -> None:
    """The same figures with torch and plain loops."""
    facts = read_facts(folder).variants
    bundle = load_bundle(folder)
    sessions = [
        ort.InferenceSession(folder / VARIANTS[name], providers=["CPUExecutionProvider"])
        for name in ("fp32", variant)
    ]
    nats = n_bytes = agree = divergence = n = 0
    for ids, targets in compared_rows(run, 1):
        logits = []
        for session in sessions:
            feeds = {
                "input_ids": ids[None],
                "attention_mask": np.ones_like(ids)[None],
                "position_ids": np.arange(len(ids))[None],
            }
            shape = (1, bundle.config.n_kv_head, 0, bundle.config.head_dim)
            feeds |= {i.name: np.zeros(shape, np.float32) for i in session.get_inputs()[3:]}
            logits.append(torch.from_numpy(session.run(["logits"], feeds)[0][0]).log_softmax(-1))
        for at in np.flatnonzero(targets != IGNORED):
            reference, got = logits[0][at], logits[1][at]
            nats -= got[targets[at]].item()
            n_bytes += len(bundle.tokenizer.token_bytes(int(targets[at])))
            agree += int(reference.argmax() == got.argmax())
            divergence += torch.nn.functional.kl_div(
                got, reference, log_target=True, reduction="sum"
            )
            n += 1
    found = facts[variant]
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-4)
    assert found.agreement == pytest.approx(agree / n, abs=2e-3)
    assert found.divergence == pytest.approx(float(divergence) / n, rel=0.02, abs=1e-6)
    assert found.bytes == (folder / found.file).stat().st_size
    card = (folder / "README.md").read_text()
    assert f"| `{found.file}` | {variant} |" in card


def test_fp32_measures_what_training_measured(folder: Path) -> None:
    facts = read_facts(folder)
    assert facts.variants["fp32"].bits_per_byte == pytest.approx(
        facts.measured["bits_per_byte"], rel=1e-2  # training evaluates in bf16 where it can
    )  # fmt: skip
    assert facts.variants["fp32"].agreement == 1
    assert facts.variants["fp32"].divergence == 0


def test_hardly_any_held_out_text_judges_no_file_and_is_not_in_the_card(
    folder: Path, run: Run, tmp_path: Path
) -> None:
    """The text of the training is measured instead, and the card says so."""
    little = replace(run, data=replace(run.data, held_out_tokens=57))
    assert len(compared_rows(little, 1)) > 4 * len(compared_rows(run, 1))
    facts = replace(read_facts(folder), measured=measured(little, run.train.steps))
    assert "train_loss" in facts.measured and "val_loss" not in facts.measured
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    write_card(copy / "README.md", facts, Hub())
    card = (copy / "README.md").read_text(encoding="utf-8")
    assert "| bits per byte, training text |" in card and "held-out" not in card
    assert "| bits per byte |" in (folder / "README.md").read_text(encoding="utf-8")


def test_one_that_is_much_worse_is_refused_unless_forced(
    folder: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A variant whose weights are spoilt."""

    def spoilt(source: Path, rows: object) -> onnx.ModelProto:
        proto = onnx.load(source)
        weights = {t.name: t for t in proto.graph.initializer}
        table = onnx.numpy_helper.to_array(weights["head.weight"])
        weights["head.weight"].CopyFrom(onnx.numpy_helper.from_array(-table, "head.weight"))
        return proto

    monkeypatch.setitem(FORMATS, "q4", spoilt)
    copy, rows = shutil.copytree(folder, tmp_path / "copy"), compared_rows(run, 1)
    facts = add_variants(copy, ["q4", "q8"], rows, run.tokenizer, force=False)
    assert "q4 is over 4% worse: onnx/model_q4.onnx is left out" in capsys.readouterr().out
    assert set(facts) == {"fp32", "q8"} and not (copy / VARIANTS["q4"]).exists()
    facts = add_variants(copy, ["q4"], rows, run.tokenizer, force=True)
    assert set(facts) == {"fp32", "q4"} and (copy / VARIANTS["q4"]).exists()


def test_fp16_of_a_model_whose_values_it_does_not_hold_is_refused_unless_forced(
    folder: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same function: what a feed-forward multiplies by is larger, what follows is smaller.

    A CPU, which computes in 32 bits, measures no loss of it.
    """
    model = build_model(run.model)
    load_weights(model, run.best_checkpoint().model, run.path)
    with torch.no_grad():
        for block in model.blocks:
            block.feed_forward.gate_up.weight[run.model.n_inner :] *= 2.0**16
            block.feed_forward.down.weight *= 2.0**-16
    copy, rows = shutil.copytree(folder, tmp_path / "copy"), compared_rows(run, 1)
    write_decoder(model, copy / VARIANTS["fp32"])
    facts = add_variants(copy, ["fp16", "q8"], rows, run.tokenizer, force=False)
    said = r"fp16 holds no more than 65,504, and the model computes [\d,]+: .*fp16.onnx is left out"
    assert re.search(said, capsys.readouterr().out)
    assert set(facts) == {"fp32", "q8"} and not (copy / VARIANTS["fp16"]).exists()
    facts = add_variants(copy, ["fp16"], rows, run.tokenizer, force=True)
    assert facts["fp16"].bits_per_byte == pytest.approx(facts["fp32"].bits_per_byte, rel=1e-3)


def test_int8_that_memory_cannot_hold_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    facts, target = ModelFacts("huge", False, 10**13, ModelConfig()), tmp_path / "out"
    with pytest.raises(UserError, match=r"int8 needs 200,000\.0 GB of memory .*: take q8"):
        write_verified(Target(target, "huge", Hub(), ["int8"]), facts, pytest.fail, None)
    assert not target.exists()


def test_four_bits_in_half_precision_are_fitted_only_once(
    folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, both = (shutil.copytree(folder, tmp_path / name) for name in ("alone", "both"))
    rows, texts = compared_rows(run, 1), calibration_rows(run)
    add_variants(alone, ["q4f16"], rows, run.tokenizer, True, lambda graph: texts)
    monkeypatch.delitem(FORMATS, "q4f16")
    add_variants(both, ["q4f16", "q4"], rows, run.tokenizer, True, lambda graph: texts)
    # The same nodes and weights, of which some may stand in another order.
    one, two = (
        sorted(part.SerializeToString() for part in (*graph.node, *graph.initializer))
        for graph in (onnx.load(place / VARIANTS["q4f16"]).graph for place in (alone, both))
    )
    assert one == two


def test_a_large_model_is_measured_on_some_rows_of_the_whole_text(run: Run) -> None:
    every = [ids.tolist() for ids, _ in compared_rows(run, 1)]
    n_tokens = len(every) * run.model.block_size / 3
    some = [ids.tolist() for ids, _ in compared_rows(run, int(FLOPS / (2 * n_tokens)))]
    assert len(every) > 3 and some == every[:: every.index(some[1])] and 1 < len(some) < len(every)


def test_rows_are_as_long_as_the_context_unless_their_logits_fill_the_memory() -> None:
    """SmolLM2's context and vocabulary make 1.6 GB of logits of one row."""
    for vocab_size, block_size, expected in (
        (4096, 1024, 1024),
        (300, 64, 64),
        (49152, 8192, 512),
        (151936, 256, 256),
    ):
        config = ModelConfig(vocab_size=vocab_size, block_size=block_size)
        assert variants.row_tokens(config) == expected


@pytest.mark.slow
def test_int8_keeps_the_inputs_of_products_that_narrow(run: Run, tmp_path: Path) -> None:
    """Each feed-forward gets one input, read by nobody, beside which one scale for all would
    leave nothing of the others."""
    model = build_model(run.model)
    load_weights(model, run.best_checkpoint().model, run.path)
    with torch.no_grad():
        for block in model.blocks:
            block.feed_forward.gate_up.weight[-1] *= 1e4
            block.feed_forward.down.weight[:, -1] = 0.0
    (tmp_path / "onnx").mkdir()
    write_decoder(model, tmp_path / VARIANTS["fp32"])
    facts = add_variants(tmp_path, ["int8"], compared_rows(run, 1), run.tokenizer, force=False)
    assert facts["int8"].bits_per_byte < 1.01 * facts["fp32"].bits_per_byte
    assert facts["int8"].divergence < 0.01


def test_a_product_that_keeps_its_inputs_has_a_scale_for_each_output() -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.normal(size=(64, 6)) * 10.0 ** np.arange(-3, 3)).astype(np.float32)
    matrix[:, 5] = 0.0
    x = rng.normal(size=(50, 64)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(
        [node], "g", values[:1], values[1:], [numpy_helper.from_array(matrix, "w")]
    )
    keep_inputs(graph, graph.node[0])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (y,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    # Rounding moves a weight by half a step at most, a 254th of the largest of its output.
    bound = np.abs(x).sum(1, keepdims=True) * np.abs(matrix).max(0) / 254
    assert (np.abs(y - x @ matrix) <= 1.01 * bound + 1e-6).all()


@pytest.mark.parametrize("variant", ALL)
def test_each_answers(folder: Path, variant: str) -> None:
    model = load_model(folder, threads=1, variant=variant)
    assert model.variant == variant and model.file_name == Path(VARIANTS[variant]).name
    assert model.file_name in device_line(model)
    messages = [{"role": "user", "content": "Hello!"}]
    assert list(chat(model, messages, Sampling(temperature=0), 5))[-1].n_new >= 1


@pytest.mark.parametrize("variant", ("fp16", "q8", "q4", "q4f16"))
def test_cached_equals_uncached(folder: Path, variant: str) -> None:
    """Not for int8, whose scales depend on what is read at a time."""
    model = load_model(folder, threads=1, variant=variant)
    ids = np.random.default_rng(0).integers(0, 500, 40).tolist()
    whole, steps = model.session(), model.session()
    steps.prefill(ids[:1])
    for token_id in ids[1:]:
        logits = steps.step(token_id)
    assert np.abs(whole.prefill(ids) - logits).max() < 0.05


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "portable"])
def test_the_fastest_is_taken(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    """By a measurement, here a made-up one; the smallest file tells the number of threads.

    Of the variants with a serving graph, if there are any: then int8 is not tried.
    """
    if not is_served:
        folder = without_serving(folder, tmp_path / "portable")
    best = "q8" if is_served else "int8"
    monkeypatch.setattr(cores, "n_cores", lambda: 4)
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: False)
    tried: list[tuple[str, int]] = []

    def seconds(model: OnnxModel) -> float:
        tried.append((model.variant, model.threads))
        return {"fp32": 3.0, "int8": 1.0, "q8": 2.0, "q4": 4.0}[model.variant] * model.threads

    monkeypatch.setattr(gptcore.model, "step_seconds", seconds)
    model = load_model(folder)
    assert (model.variant, model.threads) == (best, 1)
    names = {"fp32", "q8", "q4", best}
    assert sorted(tried) == sorted([*((name, 1) for name in names), ("q4", 4)])
    assert ("last_positions" in [i.name for i in model.inference.get_inputs()]) == is_served


SMALL = {"vocab_size": 300, "block_size": 32, "n_layer": 1, "n_embd": 48, "n_inner": 64}
SHAPES = {
    "untied": ModelConfig(**SMALL | {"n_embd": 64}, tied_embeddings=False),
    "head bias": replace(PRESETS["wayland_post"], **SMALL),
    "head bias, tied": replace(PRESETS["annotated"], **SMALL, tied_embeddings=True),
    "wider than its vocabulary": ModelConfig(**SMALL | {"n_embd": 320}),
}


UNUSED = 200  # an id whose row in the table is zero, as of names that a vocabulary keeps free

# Largest divergence of a format, as a share of that of matrices which are all zero.
SHARES = {"fp16": 0.001, "int8": 0.02, "q8": 0.01, "q4": 0.2, "q4f16": 0.2}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_of_any_shape_is_quantised(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = build_model(SHAPES[shape])
    with torch.no_grad():  # an untrained model hardly depends on its weights
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
        model.head.weight[UNUSED] = 0
    write_decoder(model, tmp_path / "model.onnx")
    files = {"fp32": tmp_path / "model.onnx"}
    for variant in FORMATS:
        files[variant] = tmp_path / f"{variant}.onnx"
        save_quantized(files["fp32"], files[variant], variant)
        onnx.checker.check_model(files[variant])
    files["zero"] = tmp_path / "zero.onnx"
    monkeypatch.setattr(
        "export.quantize.save.quantize", lambda matrix, *how: quantize(0 * matrix, *how)
    )
    save_quantized(files["fp32"], files["zero"], "q8")
    rows = list(text_rows([[*range(30, 120), UNUSED, *range(40)]], 32))
    found = measure(files, rows, np.ones(300, np.int64))
    assert FORMATS.keys() == SHARES.keys()
    for variant, share in SHARES.items():
        assert abs(found[variant].divergence) < share * found["zero"].divergence
    assert found["fp32"].total.n_tokens == 130
    integers = {t.name: t for t in onnx.load(files["int8"]).graph.initializer}
    if "head_rows" in integers:  # as the embedding reads it
        assert (numpy_helper.to_array(integers["head_rows"])[UNUSED] == 128).all()
    for variant in ("int8", "q8", "q4", "q4f16") if shape == "untied" else ():
        tensors = onnx.load(files[variant]).graph.initializer
        large = [tensor for tensor in tensors if np.prod(tensor.dims) >= 300 * 64]
        assert [tensor.data_type for tensor in large] == 2 * [TensorProto.UINT8]
    [head] = [node for node in onnx.load(files["q4"]).graph.node if node.name == HEAD]
    assert {a.name: a.i for a in head.attribute}["bits"] == 8, "each token depends on it"


def test_large_files_are_measured_one_after_another_and_each_is_opened_once(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is closed before the next is opened, and the reference is on the disk."""
    files = {"fp32": model_folder / VARIANTS["fp32"], "q4": tmp_path / "q4.onnx"}
    save_quantized(files["fp32"], files["q4"], "q4")
    rows, n_bytes = list(text_rows([list(range(30, 120))], 20)), np.ones(512, np.int64)
    together = measure(files, rows, n_bytes)
    open_now: list[weakref.ref] = []

    def opened(path: Path, ids: np.ndarray) -> ort.InferenceSession:
        assert all(session() is None for session in open_now)
        session = quickest(path, ids)
        open_now.append(weakref.ref(session))
        return session

    quickest = variants.quickest
    monkeypatch.setattr(variants, "quickest", opened)
    monkeypatch.setattr(variants, "TIMED_BYTES", 0)
    monkeypatch.setattr(variants, "REFERENCE_BYTES", 4 * 20 * 512)
    for name, found in measure(files, rows, n_bytes).items():
        assert found.total.n_tokens == 89 and found.n_agree == together[name].n_agree
        assert found.total.nats == pytest.approx(together[name].total.nats)
        assert found.divergence == pytest.approx(together[name].divergence, rel=1e-3, abs=1e-6)
    assert len(open_now) == len(files) and [*tmp_path.iterdir()] == [files["q4"]]

    measure({"fp32": files["fp32"]}, rows, n_bytes)
    assert len(open_now) == len(files) + 1, "one file alone is opened once, too"


@pytest.mark.parametrize("fastest", [1, 4])
def test_a_file_is_measured_on_as_many_threads_as_read_a_row_fastest(
    monkeypatch: pytest.MonkeyPatch, fastest: int
) -> None:
    answers = iter([1.0, 2.0] if fastest == 1 else [2.0, 1.0])  # of one thread, then of four

    def seconds(step: Callable[[], object], most: int) -> float:
        step()
        return next(answers)

    monkeypatch.setattr(cores, "n_cores", lambda: 4)
    monkeypatch.setattr(variants, "median_seconds", seconds)
    session = variants.quickest(TINY / "model" / VARIANTS["fp32"], np.arange(8))
    assert session.get_session_options().intra_op_num_threads == fastest


def test_the_sums_are_right_for_a_case_by_hand() -> None:
    sums = Measured()
    reference = np.log(np.array([[0.5, 0.25, 0.25]]))
    sums.add(np.log(np.array([[0.25, 0.5, 0.25]])), reference, np.array([0]), n_bytes=2)
    assert sums.total.nats == pytest.approx(math.log(4))
    assert sums.divergence == pytest.approx(0.25 * math.log(2))
    assert sums.total.bits_per_byte == pytest.approx(1.0)
    assert (sums.n_agree, sums.total.n_tokens, sums.total.n_bytes) == (0, 1, 2)
    assert np.exp(log_softmax(np.array([[1e4, 0.0]]))).sum() == pytest.approx(1)


def test_mistakes_are_named(
    folder: Path, model_folder: Path, run: Run, refused: Refused, tmp_path: Path
) -> None:
    said = refused(main, run.path, "--out", tmp_path / "out", "--quantize", "int9")
    assert "unknown number format 'int9': did you mean 'int8'?" in said
    said = refused(app_main, *ANY_PORT, "--model", model_folder, "--variant", "q4")
    assert "has no variant 'q4', only fp32: export it with --quantize q4" in said
    said = refused(app_main, *ANY_PORT, "--model", model_folder, "--variant", "q44")
    assert "unknown variant 'q44': did you mean 'q4'?" in said
    moved = Run.load(shutil.copytree(run.path, tmp_path / "run"))
    replace(moved, data=replace(moved.data, shards=str(tmp_path / "gone"))).write_config()
    said = refused(main, moved.path, "--out", tmp_path / "out", "--quantize", "q8")
    assert "leave out --quantize" in said
    said = refused(main, run.path, "--from-hf", folder, "--out", tmp_path / "out")
    assert "name one of a run directory, --from-hf DIR or --from-gguf FILE" in said
    assert not (tmp_path / "out").exists()
