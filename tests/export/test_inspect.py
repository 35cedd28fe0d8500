"""Seeing inside: what the inspecting graph returns is what the model computes."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import TINY, Refused
from onnx import numpy_helper

import export.folder.write
from export.__main__ import main
from export.formats.inspection import InspectGPT, InspectSeq2Seq, ungroup, write_inspect
from export.verify.decoder import load_reference
from export.verify.inspection import compare_inspect
from gptcore.bundle import FACTS, INSPECT, UNTRAINED, load_bundle, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.config import DECODERS
from gptcore.engine.onnx_session import open_inference
from gptcore.inspection import (
    MAX_TOKENS,
    Inspection,
    Inspector,
    ids_of_messages,
    ids_of_text,
    inspect_ids,
    inspect_translation,
)
from gptcore.model import load_model
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.text.chat_template import messages_of, render
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import translate
from training.run.directory import Run

TEXT = "How are you today, Marie? 你"


@pytest.fixture(scope="module")
def inspector(inspectable: Path) -> Inspector:
    return Inspector(load_bundle(inspectable))


def inspect_text(inspector: Inspector, text: str, n_next: int = 10) -> Inspection:
    return inspect_ids(inspector, ids_of_text(inspector.bundle, text), n_next)


@pytest.fixture(scope="module")
def seen(inspector: Inspector) -> Inspection:
    return inspect_text(inspector, TEXT)


@pytest.fixture(scope="module")
def network(inspectable: Path) -> GPT:
    return load_reference(load_bundle(inspectable))


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_the_shapes_are_those_of_the_model(seen: Inspection) -> None:
    n = len(seen.tokens)
    assert n == len(seen.token_ids) > 8
    assert seen.attention.shape == seen.scores.shape == (2, 4, n, n)
    assert seen.embeddings.shape == (n, 64) and seen.positions.shape == (n, 8)
    assert seen.queries.shape == (2, 4, n, 16)
    assert seen.keys.shape == seen.values.shape == (2, 2, n, 16)
    assert seen.normed.shape == (2, 2, n, 64)


def test_every_output_equals_pytorchs(inspector: Inspector, network: GPT, seen) -> None:
    got = inspector.run(input_ids=seen.token_ids)
    with torch.inference_mode():
        expected = InspectGPT(network)(torch.tensor([seen.token_ids]))
    assert set(got) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values[0].numpy(), atol=1e-4, err_msg=name)


def test_the_same_model_untrained_draws_its_matrices_as_training_does(
    inspectable: Path, network: GPT
) -> None:
    bundle = load_bundle(inspectable)
    untrained = Inspector(bundle, untrained=True)
    seen = inspect_ids(untrained, list(range(100)), 10)
    sizes = [(bundle.path / file).stat().st_size for file in (UNTRAINED, INSPECT)]
    assert sizes[0] < sizes[1] / 3
    fresh = build_model(network.config)
    assert seen.embeddings.std() == pytest.approx(fresh.embed.weight.std().item(), rel=0.05)
    likeliest = max(top[0][2] for top in seen.following)
    assert likeliest < np.log(10 / network.config.vocab_size)  # of 512 tokens none stands out
    again = inspect_ids(Inspector(bundle, untrained=True), list(range(100)), 10)
    assert np.array_equal(seen.attention, again.attention)
    with torch.inference_mode():
        shapes = {k: v.shape for k, v in InspectGPT(fresh)(torch.arange(100)[None]).items()}
    run = untrained.run(input_ids=list(range(100)))
    assert {name: (1, *array.shape) for name, array in run.items()} == shapes


def test_looking_leaves_the_model_as_it_was(network: GPT) -> None:
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        before = network(**whole_sequence(ids))[0]
        assert torch.equal(InspectGPT(network)(ids)["logits"], before)
        assert torch.equal(network(**whole_sequence(ids))[0], before)
    assert not any(m._forward_hooks for m in network.modules())


def test_attention_is_the_masked_softmax_of_the_scores(seen: Inspection) -> None:
    n = len(seen.tokens)
    np.testing.assert_allclose(seen.attention.sum(-1), 1, atol=1e-5)
    assert (seen.attention[..., np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] == 0).all()
    masked = np.where(np.tri(n, dtype=bool), seen.scores, -np.inf)
    np.testing.assert_allclose(seen.attention, softmax(masked), atol=1e-5)
    assert np.ptp(seen.scores[..., np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]]) > 0


def test_attention_equals_a_llamas_of_which_keys_are_repeated(
    inspectable: Path, seen: Inspection
) -> None:
    from transformers import LlamaForCausalLM

    llama = LlamaForCausalLM.from_pretrained(inspectable, attn_implementation="eager")
    assert llama.config.num_key_value_heads == 2 < llama.config.num_attention_heads
    with torch.inference_mode():
        output = llama(torch.tensor([seen.token_ids]), output_attentions=True)
    theirs = np.stack([layer[0].numpy() for layer in output.attentions])
    np.testing.assert_allclose(seen.attention, theirs, atol=1e-5)
    heads = seen.attention.reshape(8, -1)
    assert np.abs(heads[:, None] - heads[None]).max(-1)[~np.eye(8, dtype=bool)].min() > 1e-4


def test_heads_are_taken_out_of_their_groups_in_order() -> None:
    B, K, G, T, S = 2, 3, 2, 5, 4
    heads = torch.randn(B, K * G, T, S)
    # row t * G + g of a group is query t of its head g
    grouped = heads.view(B, K, G, T, S).transpose(2, 3).reshape(B, K, T * G, S)
    assert torch.equal(ungroup(grouped, G), heads)


def test_the_likeliest_next_tokens_are_the_main_graphs(inspectable: Path, seen: Inspection) -> None:
    model = load_model(inspectable, threads=1)
    p = softmax(model.session().prefill(seen.token_ids))
    order = np.argsort(-p, kind="stable")[:10]
    assert [name for _, name, _ in seen.following[-1]] == [
        model.tokenizer.name(i) for i in order.tolist()
    ]
    assert [token_id for token_id, _, _ in seen.following[-1]] == order.tolist()
    np.testing.assert_allclose([math.exp(q) for *_, q in seen.following[-1]], p[order], atol=1e-5)
    three = inspect_text(Inspector(model.bundle), TEXT, n_next=3)
    assert [len(top) for top in three.following] == [3] * len(seen.tokens)
    earlier = model.session().prefill(seen.token_ids[:4]).argmax()
    assert three.following[3][0][0] == earlier


def test_tokens_have_readable_names(seen: Inspection) -> None:
    assert seen.tokens[:2] == ["<|endoftext|>", "<|user|>"] and "".join(seen.tokens[2:5]) in TEXT
    assert seen.tokens[-5:] == ["\\xe4", "\\xbd", "\\xa0", "<|end|>", "<|assistant|>"]
    tokenizer = Tokenizer({bytes([b]): b for b in range(256)})
    assert [tokenizer.name(i) for i in (65, 0xC3, 10)] == ["A", "\\xc3", "\n"]
    assert [tokenizer.name(i) for i in tokenizer.special.values()] == [*tokenizer.special]


def test_a_chat_model_reads_a_message_and_a_base_model_the_text(inspector: Inspector) -> None:
    bundle = inspector.bundle
    message = [{"role": "user", "content": TEXT}]
    ids = inspect_text(inspector, TEXT).token_ids
    assert ids == render(message, bundle.tokenizer, prompt=True)
    base = Inspector(replace(bundle, facts=replace(bundle.facts, chat=False)))
    start = bundle.tokenizer.special["<|endoftext|>"]
    assert inspect_text(base, TEXT).token_ids == [start, *bundle.tokenizer.encode(TEXT)]
    for empty in ("", " \n"):
        with pytest.raises(UserError, match="the text is empty"):
            inspect_text(base, empty)


def test_a_text_too_long_for_a_picture_is_refused(inspector: Inspector) -> None:
    n_around = len(inspect_text(inspector, "\x01").token_ids) - 1
    longest = inspect_text(inspector, "\x01" * (MAX_TOKENS - n_around))
    assert len(longest.tokens) == MAX_TOKENS
    with pytest.raises(UserError, match=r"the text has 129 tokens and the picture holds 128"):
        inspect_text(inspector, "\x01" * (MAX_TOKENS - n_around + 1))
    with pytest.raises(UserError, match="the text is too long"):
        inspect_text(inspector, "a" * 1_000_000)


def test_of_a_long_conversation_the_end_is_shown(inspector: Inspector) -> None:
    bundle = inspector.bundle
    turns = ["Tell me a story.", "Once there was a cat."] * 40
    messages = messages_of(turns)
    ids, n_dropped, n_cut = ids_of_messages(bundle, messages)
    assert 0 < n_dropped < 80 and n_cut == 0 and 100 < len(ids) <= MAX_TOKENS
    assert ids == render(messages[n_dropped:], bundle.tokenizer)
    assert len(inspect_ids(inspector, ids, 10).following) == len(ids)
    assert messages[n_dropped]["role"] == "user"  # as the model reads it in a chat
    system = {"role": "system", "content": "Be kind."}
    ids, n_dropped, _ = ids_of_messages(bundle, [system, *messages])
    assert ids == render([system, *messages[n_dropped:]], bundle.tokenizer)
    hi = messages_of(["Hi"])
    assert ids_of_messages(bundle, hi).ids == render(hi, bundle.tokenizer, prompt=True)
    with pytest.raises(UserError, match="the text is too long"):
        ids_of_messages(bundle, messages_of(["a" * 1_000_000]))
    with pytest.raises(UserError, match="unknown role"):
        ids_of_messages(bundle, [{"role": "king", "content": "Hi"}])


def test_of_a_long_reply_the_beginning_is_shown(inspector: Inspector) -> None:
    bundle = inspector.bundle
    messages = messages_of(["Tell me a story.", "\x01" * 200])
    read = ids_of_messages(bundle, messages)
    whole = render(messages, bundle.tokenizer)
    assert read == (whole[:MAX_TOKENS], 0, len(whole) - MAX_TOKENS)
    assert ids_of_messages(bundle, [*messages_of(["Hi", "Hello!"]), *messages]) == (
        whole[:MAX_TOKENS],
        2,
        len(whole) - MAX_TOKENS,
    )
    words = messages_of(["Tell me a story.", "Once there was a cat. " * 80])  # 1,760 characters
    assert len(ids_of_messages(bundle, words).ids) == MAX_TOKENS
    system = {"role": "system", "content": "\x01" * 200}
    for too_long in (messages_of(["\x01" * 200]), [system, *messages_of(["Hi", "Hello!"])]):
        with pytest.raises(UserError, match="the picture holds 128"):  # it can be shortened
            ids_of_messages(bundle, too_long)


def test_a_model_of_a_short_context_shows_no_more_than_that(inspector: Inspector) -> None:
    bundle = inspector.bundle
    short = Inspector(replace(bundle, config=replace(bundle.config, block_size=8)))
    assert len(inspect_text(short, "\x01" * 4).tokens) == 8
    with pytest.raises(UserError, match="the picture holds 8"):
        inspect_text(short, "\x01" * 5)


def test_a_folder_without_the_graph_says_how_to_get_it(model_folder: Path) -> None:
    bundle = load_bundle(model_folder)
    assert INSPECT not in bundle.facts.sha256
    with pytest.raises(
        UserError, match=f"inspect.onnx: python -m export inspect {model_folder.name}"
    ) as no:
        Inspector(bundle)
    assert str(model_folder.parent) not in str(no.value)  # on the page, strangers read it


def test_a_translator_is_said_to_have_the_graph(refused: Refused) -> None:
    assert "and has its Inspect graph already" in refused(main, "inspect", TINY / "translator")


@pytest.mark.slow
def test_with_the_graph_the_folder_still_loads_verifies_and_may_be_written_again(
    run: Run, inspectable: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(inspectable, tmp_path / "copy")
    before = {p.name: p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    assert main(["inspect", str(copy)]) == 0, "a second time too"
    assert "differs from PyTorch by" in capsys.readouterr().out
    after = {p.name: p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    assert set(before) == set(after) and "inspect.onnx" in after
    same = [name for name in before if name not in (FACTS, "inspect.onnx")]
    assert all(before[name] == after[name] for name in same)
    assert main(["verify", str(copy)]) == 0
    assert main([str(run.path), "--out", str(copy)]) == 0
    assert load_bundle(copy).facts.sha256.keys() >= {INSPECT, UNTRAINED}


@pytest.mark.slow
@pytest.mark.parametrize("most", [10**5, 10**3])
def test_an_export_adds_the_graphs_of_a_model_that_is_not_large(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export.folder.write, "INSPECT_PARAMETERS", most)
    out = tmp_path / "model"
    assert main([str(TINY / "run"), "--out", str(out), "--inspect"]) == 0
    is_small = read_facts(out).parameters <= most
    assert is_small == (most == 10**5)
    assert ({INSPECT, UNTRAINED} <= read_facts(out).sha256.keys()) == is_small
    assert (out / INSPECT).is_file() == is_small
    load_bundle(out)


def test_the_graph_is_standard_and_has_named_axes(inspectable: Path) -> None:
    graph = onnx.load(inspectable / INSPECT)
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 18)]
    assert graph.ir_version == 8
    dims = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in [*graph.graph.input, *graph.graph.output]
    }
    B, T = "batch_size", "sequence_length"
    assert dims == {
        "input_ids": [B, T],
        "logits": [B, T, 512],
        "embeddings": [B, T, 64],
        "positions": [1, T, 8],
        "scores": [B, 2, 4, T, T],
        "attention": [B, 2, 4, T, T],
        "queries": [B, 2, 4, T, 16],
        "keys": [B, 2, 2, T, 16],
        "values": [B, 2, 2, T, 16],
        "normed": [B, 2, 2, T, 64],
    }


def test_a_graph_that_is_not_the_model_is_not_kept(
    inspectable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(inspectable, tmp_path / "copy")

    def wrong(model: GPT, path: Path) -> None:
        graph = onnx.load(inspectable / INSPECT)
        tensor = next(t for t in graph.graph.initializer if list(t.dims) == [512, 64])
        values = numpy_helper.to_array(tensor) * 1.01
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        onnx.save(graph, path)

    monkeypatch.setattr(export.folder.write, "write_inspect", wrong)
    with pytest.raises(UserError, match="was not written: it differs from PyTorch by"):
        export.folder.write.add_inspect(copy)
    load_bundle(copy)  # a sound folder, as before
    facts = read_facts(copy)  # what PyTorch rounds by so much may differ by more
    rounded = tuple(replace(parity, limit=99.0) for parity in facts.parity)
    write_facts(copy, replace(facts, parity=rounded))
    export.folder.write.add_inspect(copy)


def test_a_norm_that_a_block_uses_twice_is_shown_twice(tmp_path: Path) -> None:
    config = replace(DECODERS["tiny"], vocab_size=270, n_layer=2, shared_norm=True)
    model = build_model(config).eval()
    with torch.no_grad():  # scores far above 1, whose rounding is no difference
        for block in model.blocks:
            block.attention.qkv.weight.mul_(30)
    write_inspect(model, tmp_path / "inspect.onnx")
    inference = open_inference(tmp_path / "inspect.onnx", "cpu", threads=1)
    (normed,) = inference.run(["normed"], {"input_ids": np.arange(7)[None]})
    assert normed.shape == (1, 2, 2, 7, 64)
    assert compare_inspect(model, tmp_path / "inspect.onnx") < 1e-4


@pytest.mark.slow
def test_positions_that_are_added_are_shown_as_wide_as_the_model(tmp_path: Path) -> None:
    sizes = {"vocab_size": 270, "n_layer": 1, "n_embd": 32, "n_inner": 16, "n_head": 2}
    config = replace(DECODERS["annotated"], **sizes, n_kv_head=2, block_size=20, n_position=30)
    model = build_model(config).eval()
    write_inspect(model, tmp_path / "inspect.onnx")
    inference = open_inference(tmp_path / "inspect.onnx", "cpu", threads=1)
    ids = np.arange(7)[None]
    for name in ("embeddings", "positions", "scores", "attention", "logits"):
        with torch.inference_mode():
            expected = InspectGPT(model)(torch.from_numpy(ids))[name].numpy()
        (got,) = inference.run([name], {"input_ids": ids})
        np.testing.assert_allclose(got, expected, atol=1e-5)
    names = ["queries", "keys", "values", "normed", "scores"]
    q, k, v, normed, scores = inference.run(names, {"input_ids": ids})
    assert v.shape == k.shape == (1, 1, 2, 7, 16)
    np.testing.assert_allclose(q @ k.swapaxes(-2, -1) * 16**-0.5, scores, atol=1e-5)
    block = model.blocks[0]
    packed = block.attention.qkv(torch.from_numpy(normed[:, 0, 0])).detach().numpy()
    heads = packed.reshape(1, 7, 6, 16).swapaxes(1, 2)  # 2 of queries, of keys, of values
    np.testing.assert_allclose(np.concatenate([q, k, v], 2)[:, 0], heads, atol=1e-5)
    assert normed.shape == (1, 1, 2, 7, 32) and not np.allclose(normed[:, 0, 0], normed[:, 0, 1])
    (embeddings,) = inference.run(["embeddings"], {"input_ids": ids})
    rows = model.embed.weight.detach().numpy()[:7] * 32**0.5
    np.testing.assert_allclose(embeddings[0], rows, atol=1e-5)


def test_a_translation_shows_which_source_tokens_each_target_token_was_made_from(
    translator: OnnxTranslator,
) -> None:
    inspector = Inspector(translator.bundle)
    translation = translate(translator, "睡觉狗红三。😀", beams=2)
    seen = inspect_translation(inspector, translation)
    T, S = len(translation.target_ids) - 1, len(translation.source_ids)
    assert seen.attention.shape == (2, 4, T, S) and (len(seen.target), len(seen.source)) == (T, S)
    np.testing.assert_allclose(seen.attention.sum(-1), 1, atol=1e-5)
    assert seen.encoder.shape == (1, 4, S, S) and seen.decoder.shape == (2, 4, T, T)
    for attention in (seen.encoder, seen.decoder):
        np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    assert (np.triu(seen.decoder, 1) == 0).all() and (np.triu(seen.encoder, 1) != 0).any()
    assert seen.source[-1] == "<|end|>" and "\\xf0" in seen.source
    if translation.finished:
        assert seen.target[-1] == "<|end|>"


def test_the_translations_graph_equals_pytorch_and_keys_repeated(
    translator: OnnxTranslator,
) -> None:
    from export.verify.translation import load_reference as load_seq2seq

    model, translation = load_seq2seq(translator.bundle), translate(translator, "唱马蓝七。")
    inspector = Inspector(translator.bundle)
    inputs = [translation.source_ids, translation.target_ids[:-1]]
    got = inspector.run(input_ids=inputs[0], decoder_input_ids=inputs[1])
    source, target = (torch.tensor([ids]) for ids in inputs)
    caught = []
    block = model.blocks[1].cross_attention
    hook = block.q.register_forward_hook(lambda m, i, output: caught.append(output))
    with torch.inference_mode():
        expected = InspectSeq2Seq(model)(source, target)
        keys = model.encode(source, torch.ones_like(source))[1][0]
    hook.remove()
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values[0].numpy(), atol=1e-4)
    q = caught[0].view(1, target.shape[1], 4, 16).transpose(1, 2)
    k = keys.repeat_interleave(2, dim=1)
    attention = (q @ k.transpose(-2, -1) / 4).softmax(-1)[0]
    np.testing.assert_allclose(got["cross_attention"][1], attention.numpy(), atol=1e-4)
