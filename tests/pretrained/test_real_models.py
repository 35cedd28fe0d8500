"""A model with real weights, SmolLM2-135M-Instruct as GGUF: read as other programs read it."""

import hashlib
import json
from pathlib import Path

import pytest
import requests
import torch
from foreign import in_onnxruntime_genai, in_transformers_js
from tokenizers import Tokenizer as Fast

from benchmarks.crowds.servers import llama
from export.formats.weights import Weights
from export.gguf.to_hugging_face import to_hugging_face
from export.kit.hard_texts import hard_texts
from export.pretrained.config import read_config
from export.pretrained.hugging_face import read_weights, write_config
from export.pretrained.tokenizer import read_settings, read_tokenizer
from gptcore.nn import build_model
from gptcore.nn.llama import to_llama
from gptcore.text.chat_template import render

pytestmark = pytest.mark.peers

VOCABULARY = 49152
WEIGHTS = "785e20b3e653276b0579b744214a1186d730ba80af04f397f642d6432e5e0154"
PLAIN = [
    "Don't say it's what we'll do, I'm sure you've", "I have 12 apples and 345 pears.", "a  12 x",
    "  5", "def f(x):\n    return x  + 1\n", "2026-11-25, 3.14", "½ cup, 2² ٣٤٥",
    "\n\n  x\t\r\n y  ",
]  # fmt: skip


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
    config = read_config(read_settings(folder / "config.json"), folder, context=2048)
    with torch.device("meta"):
        read_weights(folder, set(to_llama(build_model(config).state_dict(), config)))


def test_ids_are_those_of_other_tokenizers(smollm2: Path, folder: Path) -> None:
    """llama.cpp knows letters of another version of Unicode, and merges across missing bytes."""
    ours = read_tokenizer(folder, VOCABULARY)
    theirs = Fast.from_file(str(folder / "tokenizer.json"))
    texts = ["a  12 x", "1234", "  5", *hard_texts(5000)]
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [ours.encode(text) for text in texts] == expected
    with llama(smollm2, context=512) as server:
        tried = [text for text in texts[:500] if "\0" not in text]
        same = [tokens(server.url, text) == ours.encode(text) for text in tried]
    assert all(same[:3]) and sum(same) >= 0.995 * len(same)


def tokens(url: str, text: str) -> list[int]:
    body = {"content": text, "add_special": False, "parse_special": False}
    return requests.post(f"{url}/tokenize", json=body, timeout=60).json()["tokens"]


def test_the_exported_file_is_read_alike_by_other_runtimes(folder: Path, tmp_path: Path) -> None:
    """Plain texts without exception. Of hard ones, those count whose bytes are all in the
    vocabulary: other runtimes do not merge across a missing byte. What is left are letters of
    another version of Unicode, and in onnxruntime-genai U+0085, which is no white space there."""
    ours, settings = read_tokenizer(folder, VOCABULARY), read_settings(folder / "config.json")
    write_config(settings, read_config(settings, folder, context=2048), ours, folder, tmp_path)
    assert read_tokenizer(tmp_path, VOCABULARY).sha256 == ours.sha256  # what it wrote, it reads
    hard = [text for text in hard_texts(3000, seed=20) if "\0" not in text]
    whole = [text for text in hard if ours.decode(ours.encode(text)) == text]
    assert len(whole) > 1500
    texts = [*PLAIN, *whole]
    expected = [e.ids for e in Fast.from_file(str(folder / "tokenizer.json")).encode_batch(texts)]
    for found, least in (
        (in_transformers_js(tmp_path, texts)["ids"], 0.998),
        (in_onnxruntime_genai(tmp_path, texts), 0.98),
    ):
        same = [ids == right for ids, right in zip(found, expected, strict=True)]
        assert all(same[: len(PLAIN)]), PLAIN[same.index(False)]
        assert sum(same) >= least * len(same)


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
