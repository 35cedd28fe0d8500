"""A GGUF file through `--from-gguf`: the same weights and ids, and clear refusals."""

import json
import re
import resource
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import requests
import torch
from conftest import NANO, Refused
from foreign import N_TRAINED

from benchmarks.crowds.servers import llama
from export.__main__ import main
from export.formats.hugging_face import transformers_config
from export.formats.weights import Weights, write_weights
from export.gguf.file import read_gguf
from export.gguf.to_hugging_face import to_hugging_face
from export.gguf.write import write_gguf
from export.kit.hard_texts import hard_texts
from export.pretrained.config import read_config
from export.pretrained.tokenizer import read_settings, read_tokenizer
from gptcore.bundle import ONNX, load_bundle, write_facts
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.facts import ModelFacts
from gptcore.model import load_model
from gptcore.nn import build_model
from gptcore.nn.checkpoint import model_of
from gptcore.nn.llama import from_llama, to_llama
from gptcore.nn.torch_session import TorchSession

WRITTEN = b"\x05" + b"\0" * 7  # a text of five letters follows
N_TENSORS = 38  # of models/nano
IDS = [5, 8, 13, 21]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/nano as llama.cpp takes it."""
    path = tmp_path_factory.mktemp("gguf") / "nano.gguf"
    write_gguf(NANO, path)
    return path


def test_a_file_of_ours_comes_back_with_the_same_weights_and_ids(
    file: Path, tmp_path: Path
) -> None:
    to_hugging_face(file, tmp_path / "hf")
    ours, theirs = Weights(NANO), Weights(tmp_path / "hf")
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    bundle = load_bundle(NANO)
    config = read_config(read_settings(tmp_path / "hf" / "config.json"), tmp_path, None)
    same = {"n_layer", "n_head", "n_kv_head", "head_dim", "n_embd", "n_inner", "block_size"}
    assert all(getattr(config, name) == getattr(bundle.config, name) for name in same)
    tokenizer = read_tokenizer(tmp_path / "hf", config.vocab_size)
    assert tokenizer.special == bundle.tokenizer.special
    # llama.cpp's pattern splits a line break before the last white space of a text otherwise
    texts = [text.strip() for text in hard_texts(500)]
    assert all(tokenizer.encode(text) == bundle.tokenizer.encode(text) for text in texts)


SHAPE = {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 64, "n_inner": 96, "block_size": 64}
LLAMA3 = {"position": "llama3_rotary", "rope_theta": 5e5, "rope_factor": 32.0}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # how texts are split, and the shape
    "llama, tied": ("smollm", {"rope_theta": 1e5}),
    "llama, another norm": ("gpt-2", {"norm_eps": 1e-6, "tied_embeddings": False}),
    "llama 3": ("llama-bpe", LLAMA3 | {"tied_embeddings": False}),
    "qwen2": ("qwen2", {"qkv_bias": True, "rope_theta": 1e6}),
    "qwen3": ("qwen2", {"qk_norm": True, "head_size": 32, "tied_embeddings": False}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_goes_to_a_file_and_comes_back(
    kind: str, trained_elsewhere: dict[str, Path], tmp_path: Path
) -> None:
    folder = made_elsewhere(kind, trained_elsewhere, tmp_path)
    write_gguf(folder, tmp_path / "model.gguf")
    to_hugging_face(tmp_path / "model.gguf", tmp_path / "again")
    ours, theirs = Weights(folder), Weights(tmp_path / "again")
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    before, after = load_bundle(folder), tmp_path / "again"
    assert read_config(read_settings(after / "config.json"), after, None) == before.config
    tokenizer = read_tokenizer(after, N_TRAINED)
    assert (tokenizer.added, tokenizer.special) == (
        before.tokenizer.added,
        before.tokenizer.special,
    )
    texts = hard_texts(500)
    assert all(tokenizer.encode(text) == before.tokenizer.encode(text) for text in texts)
    assert tokenizer.sha256 == before.tokenizer.sha256


def made_elsewhere(kind: str, tokenizers: dict[str, Path], place: Path) -> Path:
    """A model folder of random weights, as an import writes it, but without graphs."""
    split, shape = KINDS[kind]
    source, folder = tokenizers[split], place / "model"
    config = ModelConfig(vocab_size=N_TRAINED, **SHAPE | shape)
    tokenizer = read_tokenizer(source, N_TRAINED)
    torch.manual_seed(3)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too
            parameter += 0.1 * torch.randn_like(parameter)
    (folder / ONNX).parent.mkdir(parents=True)
    (folder / ONNX).touch()
    tokenizer.save(folder)
    ids = {"eos_token_id": tokenizer.special["<|stop|>"]}
    (folder / "config.json").write_text(json.dumps(transformers_config(config, ids)))
    write_weights(to_llama(dict(model.named_parameters()), config).items(), folder)
    write_facts(folder, ModelFacts("made", chat=False, parameters=1, config=config))
    return folder


@pytest.mark.slow
def test_a_file_becomes_a_verified_model_folder(
    trained_elsewhere: dict[str, Path], tmp_path: Path
) -> None:
    """Of Qwen's kind, with its tokenizer; nothing else is left beside the folder."""
    made = made_elsewhere("qwen2", trained_elsewhere, tmp_path)
    write_gguf(made, file := tmp_path / "tiny.gguf")
    (tmp_path / ".out.gguf" / "weights that a killed export unpacked").mkdir(parents=True)
    words = ["--from-gguf", file, "--context", 32, "--out", tmp_path / "out"]
    assert main([str(word) for word in words]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out", "tiny.gguf"]
    model, ours = load_model(tmp_path / "out", threads=1), load_bundle(made)
    assert model.config == replace(ours.config, block_size=32)
    assert model.tokenizer.encode("e\u0301 <end>x") == ours.tokenizer.encode("\u00e9 <end>x")
    assert "Exported from tiny.gguf" in (tmp_path / "out" / "README.md").read_text()
    np.testing.assert_allclose(model.session().prefill(IDS), logits_of(made, IDS), atol=1e-4)


@pytest.mark.peers
@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_computes_what_we_compute(
    kind: str, trained_elsewhere: dict[str, Path], tmp_path: Path
) -> None:
    made = made_elsewhere(kind, trained_elsewhere, tmp_path)
    write_gguf(made, file := tmp_path / "tiny.gguf")
    body = {"prompt": IDS, "n_predict": 8, "return_tokens": True, "temperature": 0}
    with llama(file, context=64) as server:
        told = requests.post(f"{server.url}/completion", json=body, timeout=60).json()
    written = list(IDS)
    while len(written) < len(IDS) + 8:
        written.append(int(logits_of(made, written).argmax()))
    assert told["tokens"] == written[len(IDS) :]


def logits_of(folder: Path, ids: list[int]) -> np.ndarray:
    """What PyTorch says comes after some ids."""
    config = load_bundle(folder).config
    model = model_of(config, from_llama(Weights(folder), config), folder)
    return TorchSession(model.eval()).prefill(ids)


Change = Callable[[bytes], bytes]


def replaced(old: bytes, new: bytes) -> Change:
    def change(data: bytes) -> bytes:
        assert old in data and len(old) == len(new)
        return data.replace(old, new, 1)

    return change


def put(form: str, number: int, at: int, after: bytes = b"") -> Change:
    """Change a number, which stands `at` bytes after the end of `after`, or of nothing."""

    def change(data: bytes) -> bytes:
        place = data.index(after) + len(after) + at
        packed = struct.pack(form, number)
        return data[:place] + packed + data[place + len(packed) :]

    return change


FIRST = b"token_embd.weight"  # the first tensor; its name is followed by the number of dimensions,
NAMED, LONG = struct.pack("<Q", len(FIRST)) + FIRST, struct.pack("<Q", 99_999) + b"x" * 99_999
KIND = 4 + 2 * 8  # by these, by the number of its quantisation, and by its offset


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "is not a sound GGUF file"),
        (lambda data: b"PK" + data[2:], "is not a GGUF file"),
        (put("<I", 9, at=4), "version 9"),
        (lambda data: data[:-1], "is cut short"),
        (lambda data: data[: len(data) // 2], "is cut short"),
        (lambda data: data[:5000], "is cut short"),
        (put("<Q", 2**60, at=8), "it states"),  # the number of tensors
        (put("<Q", 9999, at=8), "damaged"),
        (put("<Q", N_TENSORS - 1, at=8), "is damaged"),
        (put("<Q", 0, at=8), "is damaged"),
        (put("<Q", 32, KIND + 4, FIRST), "is damaged: 'token_embd.weight' begins at"),
        (lambda data: data + b"\0" * 64, "is damaged: it goes on"),
        (put("<Q", 2**62, at=16), "it states"),
        (put("<Q", 2**63, at=24), "it states"),
        (replaced(WRITTEN + b"llama", WRITTEN + b"bloom"), "architecture='bloom'"),
        (replaced(b"llama-bpe", b"chameleon"), "tokenizer.ggml.pre='chameleon'"),
        (replaced(b"llama.block_count", b"llama.block_cound"), "llama.block_count=None"),
        (put("<I", 77, KIND, FIRST), "unknown quantisation 77"),
        (put("<I", 10, KIND, FIRST), "not whole blocks of Q2_K"),
        (put("<I", 26, KIND, FIRST), "quantisation I32 of token_embd.weight is not supported"),
        (lambda data: data.replace(NAMED, LONG), "a tensor's name has 99,999 characters"),
        (put("<I", 5, 4, b"attention.head_count"), "is damaged: blk.0.attn_q.weight: a matrix of"),
        (replaced(b"output_norm.weight", b"output_nerm.weight"), "'output_nerm.weight'"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_a_line(
    file: Path, refused: Refused, tmp_path: Path, change: Change, said: str
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(change(file.read_bytes()))
    assert said in refused(main, "--from-gguf", path, "--out", tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["bad.gguf"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.architecture", ["llama"]),
        ("llama.embedding_length", "128"),
        ("llama.attention.head_count", [4, 4, 4, 4]),
        ("llama.attention.head_count", 0),
        ("llama.attention.layer_norm_rms_epsilon", "1e-5"),
        ("llama.attention.value_length", 16),
        ("llama.rope.freq_base", -1.0),
        ("llama.rope.scaling.type", ["linear"]),
        ("llama.rope.scaling.factor", 4.0),
        ("llama.rope.scaling.attn_factor", 0.5),
        ("llama.attention.causal", False),
        ("llama.attention.sliding_window", 64),
        ("tokenizer.ggml.model", ["gpt2"]),
        ("tokenizer.ggml.pre", ["llama-bpe"]),
        ("tokenizer.ggml.eos_token_id", [2]),
        ("tokenizer.ggml.eot_token_id", 10**9),
        ("tokenizer.ggml.add_bos_token", "false"),
        ("tokenizer.chat_template", ["x" * 1000]),
        ("general.sampling.temp", "hot"),
    ],
    ids=str,
)
def test_metadata_that_mean_nothing_here_are_named_in_a_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: object
) -> None:
    known = read_gguf(file)
    changed = replace(known, metadata=known.metadata | {key: value})
    monkeypatch.setattr(f"{to_hugging_face.__module__}.read_gguf", lambda path: changed)
    with pytest.raises(UserError, match=f"{re.escape(f'{file}: {key}=')}.{{1,200}}$"):
        to_hugging_face(file, tmp_path / "hf")


def test_of_a_long_merge_the_beginning_is_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = read_gguf(file)
    changed = replace(known, metadata=known.metadata | {"tokenizer.ggml.merges": ["x" * 1000]})
    monkeypatch.setattr(f"{to_hugging_face.__module__}.read_gguf", lambda path: changed)
    with pytest.raises(UserError, match=r"the merge 'x{59}\.\.\. is not of two tokens"):
        to_hugging_face(file, tmp_path / "hf")


def test_settings_that_change_nothing_are_no_reason_to_refuse(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = read_gguf(file)
    neutral = {"llama.expert_count": 0, "llama.rope.scaling.type": "none"}
    neutral |= {"llama.rope.scaling.factor": 1.0}
    changed = replace(known, metadata=known.metadata | neutral)
    monkeypatch.setattr(f"{to_hugging_face.__module__}.read_gguf", lambda path: changed)
    to_hugging_face(file, tmp_path / "hf")


def test_a_disk_that_takes_no_more_is_one_line_and_nothing_stays(
    file: Path, refused: Refused, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the full disk: the same error of the system's."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        said = refused(main, "--from-gguf", file, "--out", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "model.safetensors.0 cannot be written" in said and "--out is unchanged" in said
    assert not [*tmp_path.iterdir()]


def test_a_part_of_a_model_says_how_to_make_it_whole(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00002.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 2)
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    said = refused(main, "--from-gguf", path, "--out", tmp_path / "out")
    assert "is one of the 2 parts of a model" in said and "llama-gguf-split --merge" in said


def test_biases_that_only_another_family_has_are_named(
    trained_elsewhere: dict[str, Path], refused: Refused, tmp_path: Path
) -> None:
    write_gguf(made_elsewhere("qwen2", trained_elsewhere, tmp_path), path := tmp_path / "a.gguf")
    path.write_bytes(path.read_bytes().replace(b"qwen2", b"llama"))
    said = refused(main, "--from-gguf", path, "--out", tmp_path / "out")
    assert "has a tensor 'blk.0.attn_k.bias', which is not supported" in said


def test_what_is_no_file_is_named(refused: Refused, tmp_path: Path) -> None:
    for path in (tmp_path / "no.gguf", tmp_path):
        assert "is not a file" in refused(main, "--from-gguf", path, "--out", tmp_path / "out")
    said = refused(main, "--from-gguf", path, "--from-hf", path, "--out", tmp_path / "out")
    assert "name one of" in said
