"""A model with real weights, SmolLM2-135M-Instruct as GGUF: read as other programs read it."""

import hashlib
import json
from pathlib import Path

import pytest
import requests
import torch
from tokenizers import Tokenizer as Fast

from export.formats.weights import Weights
from export.gguf.to_hugging_face import to_hugging_face
from export.kit.hard_texts import hard_texts
from export.pretrained.hugging_face import read_config, read_weights
from export.pretrained.tokenizer import read_json, read_tokenizer
from gptcore.nn import build_model
from gptcore.nn.llama import to_llama
from gptcore.text.chat_template import render
from tests.foreign import llama_server

pytestmark = pytest.mark.peers

VOCABULARY = 49152
WEIGHTS = "785e20b3e653276b0579b744214a1186d730ba80af04f397f642d6432e5e0154"


@pytest.fixture(scope="module")
def folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file as a folder of Hugging Face's kind."""
    folder = tmp_path_factory.mktemp("real") / "smollm2"
    to_hugging_face(smollm2, folder)
    return folder


def test_weights_are_those_that_transformers_reads(folder: Path) -> None:
    """Names and bits; WEIGHTS was computed of what its from_pretrained(..., gguf_file=...) gave,
    which takes half a minute."""
    ours, digest = Weights(folder), hashlib.sha256()
    for name in sorted(ours):
        digest.update(name.encode() + ours[name].numpy().tobytes())
    assert digest.hexdigest() == WEIGHTS
    config = read_config(read_json(folder / "config.json"), folder, context=2048)
    with torch.device("meta"):
        read_weights(folder, set(to_llama(build_model(config).state_dict(), config)))


def test_ids_are_those_of_other_tokenizers(smollm2: Path, folder: Path) -> None:
    """llama.cpp knows letters of another version of Unicode, and merges across missing bytes."""
    ours = read_tokenizer(folder, VOCABULARY)
    theirs = Fast.from_file(str(folder / "tokenizer.json"))
    texts = ["a  12 x", "1234", "  5", *hard_texts(5000)]
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    assert ours.encode_batch(texts) == expected
    with llama_server(smollm2, context=512) as url:
        tried = [text for text in texts[:500] if "\0" not in text]
        same = [tokens(url, text) == ours.encode(text) for text in tried]
    assert all(same[:3]) and sum(same) >= 0.995 * len(same)


def tokens(url: str, text: str) -> list[int]:
    body = {"content": text, "add_special": False, "parse_special": False}
    return requests.post(f"{url}/tokenize", json=body, timeout=60).json()["tokens"]


def test_conversations_are_those_of_its_chat_template(folder: Path) -> None:
    from transformers import AutoTokenizer

    ours = read_tokenizer(folder, VOCABULARY)
    theirs = AutoTokenizer.from_pretrained(folder)
    turns = [("user", "What is 12  34?"), ("assistant", "A sum."), ("user", "Bye!")]
    messages = [{"role": role, "content": content} for role, content in turns]
    for said in (messages[:1], messages, [{"role": "system", "content": "Be kind."}, *messages]):
        expected = theirs.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
        assert render(said, ours, prompt=True) == expected
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == 2
