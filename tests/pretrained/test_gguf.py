"""The file for llama.cpp, read back: metadata, tokens, merges, and every weight."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import NANO, Refused
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file

from export.__main__ import main
from export.formats.hugging_face import CHAT_TEMPLATE, recommended_sampling, recover_merges
from export.gguf.to_hugging_face import to_hugging_face
from export.gguf.write import write_gguf
from gptcore.bundle import (
    DECODER,
    ENCODER,
    SOURCE_TOKENIZER,
    load_bundle,
    read_facts,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.facts import ModelFacts
from gptcore.nn.layers import Llama3Rotary, Rotary
from gptcore.system.files import work_folder
from gptcore.text.letters import from_letters
from gptcore.text.tokenizer import SPECIAL_TOKENS, Tokenizer


@pytest.fixture(scope="module")
def folders(stretched: Path) -> dict[str, Path]:
    """A chat model that ships, and a base model whose head is not tied."""
    return {"chat": NANO, "base": stretched}


@pytest.fixture(scope="module", params=["chat", "base"])
def pair(
    request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path_factory
) -> tuple[Path, GGUFReader]:
    """A model folder, and what its file says."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(folders[request.param], path)
    return folders[request.param], GGUFReader(path)


def field(reader: GGUFReader, name: str):
    return reader.fields[name].contents()


def weight(reader: GGUFReader, name: str) -> np.ndarray:
    return next(tensor.data for tensor in reader.tensors if tensor.name == name)


def test_the_metadata_say_the_shape(pair: tuple[Path, GGUFReader]) -> None:
    folder, reader = pair
    bundle = load_bundle(folder)
    config = bundle.config
    assert field(reader, "general.architecture") == "llama"
    assert field(reader, "general.name") == bundle.name
    expected = {
        "vocab_size": config.vocab_size,
        "context_length": config.block_size,
        "embedding_length": config.n_embd,
        "block_count": config.n_layer,
        "feed_forward_length": config.n_inner,
        "attention.head_count": config.n_head,
        "attention.head_count_kv": config.n_kv_head,
        "attention.layer_norm_rms_epsilon": np.float32(config.norm_eps),
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": config.rope_theta,
    }
    assert {name: field(reader, f"llama.{name}") for name in expected} == expected


def test_the_tokenizer_is_ours(pair: tuple[Path, GGUFReader]) -> None:
    folder, reader = pair
    bundle = load_bundle(folder)
    tokenizer = bundle.tokenizer
    n = len(tokenizer.tokens)
    written = field(reader, "tokenizer.ggml.tokens")
    assert [from_letters(text) for text in written[:n]] == tokenizer.tokens
    assert tuple(written[n:]) == SPECIAL_TOKENS
    assert field(reader, "tokenizer.ggml.token_type") == [1] * n + [3] * len(SPECIAL_TOKENS)
    pairs = [text.split(" ") for text in field(reader, "tokenizer.ggml.merges")]
    merges = [tuple(map(from_letters, pair)) for pair in pairs]
    assert merges == recover_merges(tokenizer.ranks)
    assert [a + b for a, b in merges] == tokenizer.tokens[256:]
    for name, token in (
        ("bos", "<|endoftext|>"), ("eos", "<|end|>"), ("eot", "<|end|>"), ("padding", "<|pad|>")
    ):  # fmt: skip
        assert field(reader, f"tokenizer.ggml.{name}_token_id") == tokenizer.special[token]
    template = "tokenizer.chat_template"
    assert field(reader, "tokenizer.ggml.add_bos_token") == (not bundle.is_chat)
    assert (template in reader.fields) == bundle.is_chat
    assert not bundle.is_chat or field(reader, template) == CHAT_TEMPLATE


def test_of_several_ends_the_one_of_a_turn_is_named_beside_the_first(tmp_path: Path) -> None:
    """Llama 3.2's first end is that of a text; llama.cpp and an import must know both."""
    folder = shutil.copytree(NANO, tmp_path / "model")
    special = load_bundle(NANO).tokenizer.special
    ends = {"eos_token_id": [special["<|endoftext|>"], special["<|pad|>"], special["<|end|>"]]}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    write_facts(folder, load_bundle(NANO).facts)
    write_gguf(folder, path := tmp_path / "model.gguf")
    ids = [field(GGUFReader(path), f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    assert ids == [special["<|endoftext|>"], special["<|end|>"]]


def test_what_its_makers_recommend_to_sample_with_survives_the_way_and_back(tmp_path: Path) -> None:
    folder = shutil.copytree(NANO, tmp_path / "model")
    wanted = {"temperature": 0.5, "top_k": 20, "top_p": 0.75, "repetition_penalty": 1.125}
    write_facts(folder, replace(load_bundle(NANO).facts, sampling=wanted))
    write_gguf(folder, path := tmp_path / "model.gguf")
    to_hugging_face(path, tmp_path / "back")
    assert recommended_sampling(tmp_path / "back") == wanted


def test_every_weight_arrives(pair: tuple[Path, GGUFReader]) -> None:
    folder, reader = pair
    config = load_bundle(folder).config
    state = load_file(folder / "model.safetensors")
    assert len({tensor.name for tensor in reader.tensors} - {"rope_freqs.weight"}) == len(state)
    names = {
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    pairs = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    pairs |= {} if config.tied_embeddings else {"lm_head": "output"}
    for layer in range(config.n_layer):
        pairs |= {f"model.layers.{layer}.{a}": f"blk.{layer}.{b}" for a, b in names.items()}
        for name, n_head in (("q", config.n_head), ("k", config.n_kv_head)):
            ours = state[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
            theirs = weight(reader, f"blk.{layer}.attn_{name}.weight")
            half = config.head_dim // 2
            for head in range(n_head):
                rows = slice(head * config.head_dim, (head + 1) * config.head_dim)
                np.testing.assert_array_equal(theirs[rows][0::2], ours[rows][:half])
                np.testing.assert_array_equal(theirs[rows][1::2], ours[rows][half:])
    for ours, theirs in pairs.items():
        np.testing.assert_array_equal(weight(reader, f"{theirs}.weight"), state[f"{ours}.weight"])


def test_f16_rounds_the_matrices_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "half.gguf"
    assert main(["gguf", str(NANO), "--out", str(path), "--dtype", "f16"]) == 0
    reader, state = GGUFReader(path), load_file(NANO / "model.safetensors")
    embedding = state["model.embed_tokens.weight"].astype(np.float16)
    np.testing.assert_array_equal(weight(reader, "token_embd.weight"), embedding)
    assert weight(reader, "output_norm.weight").dtype == np.float32
    assert [file.name for file in path.parent.iterdir()] == ["half.gguf"]


def test_weights_that_f16_does_not_hold_are_refused(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(NANO, folder)
    weights = load_file(folder / "model.safetensors")
    weights[name := "model.layers.0.mlp.up_proj.weight"][0, 0] = -7e4
    save_file(weights, folder / "model.safetensors")
    write_facts(folder, read_facts(folder))
    said = refused(main, "gguf", folder, "--dtype", "f16")
    assert f"f16 holds no more than 65,504, and {name} has 70,000: choose f32" in said
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert main(["gguf", str(folder)]) == 0


def test_stretched_positions_are_written_as_llama_cpp_reads_them(
    stretched: Path, tmp_path: Path
) -> None:
    config = load_bundle(stretched).config
    write_gguf(stretched, tmp_path / "model.gguf")
    factors = weight(GGUFReader(tmp_path / "model.gguf"), "rope_freqs.weight")
    expected = (Rotary.frequencies(config) / Llama3Rotary.frequencies(config)).float()
    assert (expected.min(), expected.max()) == (1, 4) and len(expected.unique()) == 4
    np.testing.assert_allclose(factors, expected, rtol=1e-6)


def test_a_file_for_llama_cpp_is_written_without_torch(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from export.gguf.write import write_gguf
write_gguf(*map(Path, sys.argv[1:]))
print("torch" in sys.modules)
"""
    words = [sys.executable, "-c", program, str(NANO), str(tmp_path / "model.gguf")]
    result = subprocess.run(words, cwd=NANO.parents[1], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


def test_a_file_of_yours_is_not_replaced(tmp_path: Path) -> None:
    """By default the name is that of the file which a folder was imported from."""
    path = tmp_path / "nano.gguf"
    write_gguf(NANO, path)
    write_gguf(NANO, path, "f16")
    assert path.stat().st_size < 3e6
    yours = path.read_bytes().replace(b"gptcore.written", b"general.written")
    path.write_bytes(yours)
    with pytest.raises(UserError, match="was not written by this command: choose another --out"):
        write_gguf(NANO, path)
    assert path.read_bytes() == yours
    path.unlink()
    with work_folder(path), pytest.raises(UserError, match="is being written by another process"):
        write_gguf(NANO, path)
    assert not path.exists()


def test_a_link_to_a_folder_gives_the_file_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(NANO)
    assert main(["gguf", str(tmp_path / "mine"), "--dtype", "f16"]) == 0
    assert (tmp_path / "mine.gguf").is_file()


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("gptcore.written: the old one")
    monkeypatch.setattr("export.gguf.write.tensors", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_gguf(NANO, path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["gptcore.written: the old one"]


def test_what_llama_cpp_cannot_run_is_refused(
    tokenizer: Tokenizer, tmp_path: Path, refused: Refused
) -> None:
    folder = tmp_path / "model"
    tokenizer.save(folder)
    tokenizer.save(folder / SOURCE_TOKENIZER)
    (folder / "onnx").mkdir()
    for name in ("model.onnx", ENCODER, DECODER):
        (folder / "onnx" / name).touch()
    config = Seq2SeqConfig(vocab_size=512, source_vocab_size=512)
    facts = ModelFacts("model", chat=False, parameters=1, config=config)
    write_facts(folder, facts)
    assert "translation" in refused(main, "gguf", folder)
    write_facts(folder, replace(facts, config=ModelConfig(vocab_size=512, norm="layernorm")))
    assert "not of Llama's shape" in refused(main, "gguf", folder)
    (folder / "config.json").touch()
    Tokenizer(tokenizer.ranks, pattern=r"\s+|\S+").save(folder)
    write_facts(folder, replace(facts, config=ModelConfig(vocab_size=512)))
    assert "llama.cpp has no name" in refused(main, "gguf", folder)
    assert "no model folder" in refused(main, "gguf", tmp_path / "none")
    assert "is a folder" in refused(main, "gguf", NANO, "--out", tmp_path)
    with pytest.raises(UserError, match="f16"):
        write_gguf(NANO, tmp_path / "model.gguf", "f61")
