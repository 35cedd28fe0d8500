"""Texts that a model writes, to which its 4 bits are fitted."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export.formats.feeds import prompt_feeds
from export.quantize import own_texts as room
from export.quantize.own_texts import own_texts
from gptcore.bundle import graph_bytes, load_bundle
from gptcore.engine.onnx_session import open_inference
from gptcore.engine.sampling import log_softmax
from gptcore.text.chat_template import render, text_opening


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "N_TOKENS", 1000)
    monkeypatch.setattr(room, "TOGETHER", 8)


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """A copy, since a graph is written beside the model's while tests elsewhere read the folder."""
    return shutil.copytree(model_folder, tmp_path / "model")


def test_they_are_drawn_by_the_models_own_probabilities(folder: Path) -> None:
    """What a token tells on average is what the model expects of it: the entropy."""
    bundle = load_bundle(folder)
    graph, before = bundle.variants["fp32"], sorted(folder.rglob("*"))
    texts = own_texts(graph, bundle.config, bundle.tokenizer, is_chat=True)
    assert sum(map(len, texts)) >= 1000 and max(map(len, texts)) <= bundle.config.block_size
    assert sorted(folder.rglob("*")) == before
    session, told, expected = open_inference(graph), [], []
    for ids in texts:
        log_p = log_softmax(session.run(["logits"], prompt_feeds(session, ids))[0][0, 9:-1])
        told += (-log_p[np.arange(len(log_p)), ids[10:]]).tolist()
        expected += (-(np.exp(log_p) * log_p).sum(1)).tolist()
    error = np.std(told) / len(told) ** 0.5
    assert len(told) > 500 and abs(np.mean(told) - np.mean(expected)) < 4 * error


@pytest.mark.parametrize("is_chat", [False, True])
def test_every_other_text_of_a_model_that_chats_is_a_conversation(
    folder: Path, is_chat: bool
) -> None:
    bundle = load_bundle(folder)
    tokenizer = bundle.tokenizer
    texts = own_texts(bundle.variants["fp32"], bundle.config, tokenizer, is_chat)
    text = text_opening(tokenizer)
    chat = render([{"role": "user", "content": ""}], tokenizer)[: len(text) + 1]
    begun = [ids[: len(chat)].tolist() == chat for ids in texts]
    assert begun == [is_chat and i % 2 == 1 for i in range(len(texts))]
    assert all(ids[: len(text)].tolist() == text for ids in texts)
    assert len({tuple(ids.tolist()) for ids in texts}) == len(texts)


def test_a_large_model_writes_less(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = load_bundle(folder)
    monkeypatch.setattr(room, "TOGETHER", 1)
    monkeypatch.setattr(room, "MOST_FLOPS", 300 * graph_bytes(bundle.variants["fp32"]) / 2)
    texts = own_texts(bundle.variants["fp32"], bundle.config, bundle.tokenizer, False)
    assert 300 <= sum(map(len, texts)) <= 300 + bundle.config.block_size < 1000


def test_a_model_with_a_short_context_writes_no_more_texts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a row of its own to fit to."""
    bundle = load_bundle(folder)
    monkeypatch.setattr(room, "MOST_TEXTS", 20)
    config = replace(bundle.config, block_size=8)
    texts = own_texts(bundle.variants["fp32"], config, bundle.tokenizer, False)
    assert len(texts) == 24 and {*map(len, texts)} == {8}


def test_a_model_that_has_no_serving_graph_writes_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = load_bundle(folder)
    settings = bundle.variants["fp32"], bundle.config, bundle.tokenizer, True
    expected = own_texts(*settings)
    monkeypatch.setattr(room, "can_serve", lambda config: False)
    for ours, theirs in zip(own_texts(*settings), expected, strict=True):
        assert ours.tolist() == theirs.tolist()
