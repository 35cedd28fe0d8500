"""What a file claims does not decide how much memory it takes; nonsense is refused in one line."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import NANO, ROOT
from safetensors.torch import save_file

from export.pretrained.config import read_config
from export.pretrained.hugging_face import read_weights
from export.pretrained.tokenizer import read_tokenizer
from gptcore.checks import UserError
from training.data.corpus import read_documents
from training.data.pairs.sentences import read_pairs
from training.formats import lines
from training.formats.places import find_files

# Runs a function that must be refused; prints the refusal, and by how many MB the process grew.
MEASURED = """
import resource, sys
from gptcore.checks import UserError
from {module} import {function}
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
try:
    {call}
except UserError as error:
    print(peak() - before, error)
"""
MOST = 300  # MB, of which 100 are the graph's and the text's own


def refused_within(module: str, function: str, call: str, *arguments: object) -> str:
    """What the refusal says, once it was seen to take little memory."""
    script = MEASURED.format(module=module, function=function, call=call)
    words = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.strip().partition(" ")
    assert said and "\n" not in said and int(grown) < MOST, (grown, said)
    return said


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"n_layer": 10**8}, "n_layer=100000000 is out of range"),
        ({"n_layer": 10**4}, "are of different exports"),
        ({"n_layer": 3}, "are of different exports"),
        ({"n_head": 2**30, "n_embd": 2**31}, "are of different exports"),
        ({"n_head": 0}, "n_head=0 is out of range"),
        ({"n_kv_head": 0}, "n_kv_head=0 is out of range"),
    ],
    ids=str,
)
def test_facts_that_claim_another_shape_are_refused_within_little_memory(
    tmp_path: Path, claim: dict, said: str
) -> None:
    folder = shutil.copytree(NANO, tmp_path / "model")
    facts = json.loads((folder / "gptcore.json").read_text())
    facts["config"] |= claim
    (folder / "gptcore.json").write_text(json.dumps(facts))
    call = 'load_model(sys.argv[1], threads=1, device="cpu", variant="q4")'
    assert said in refused_within("gptcore.model", "load_model", call, folder)


def test_a_line_without_end_is_refused_within_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "one_line.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"text": "')
        for _ in range(400):
            file.write(b"a" * 2**20)
        file.write(b'"}\n')
    places = "__import__('training.formats.places').formats.places"
    call = f"list(read_documents({places}.find_files([sys.argv[1]])))"
    said = refused_within("training.data.corpus", "read_documents", call, path)
    assert f"{path}: line 1 is longer than 16,777,216 characters" in said


def test_lines_are_counted_and_measured_in_every_file_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_VALUE", 30)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "short"}\n\n{"text": "as long as a line is"}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl: line 3 is longer than 30 characters"):
        list(read_documents(find_files([rows])))
    rows.write_text('{"text": "exactly thirty!!"}\n' * 2)
    assert list(read_documents(find_files([rows]))) == ["exactly thirty!!"] * 2
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\teins\ntwo\t" + 30 * "z" + "\n")
    with pytest.raises(UserError, match=r"pairs\.tsv: line 2 is longer than 30 characters"):
        read_pairs(pairs)


LLAMA = json.loads((NANO / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_attention_heads": 0}, r"config\.json: num_attention_heads=0 is out of range"),
        ({"num_attention_heads": "4"}, r"config\.json: num_attention_heads='4' is not of type int"),
        ({"num_hidden_layers": 10**8}, "num_hidden_layers=100000000 is out of range"),
        ({"max_position_embeddings": None}, r"max_position_embeddings=None is not of type int"),
        ({"rms_norm_eps": [1]}, r"config\.json: rms_norm_eps=\[1\] is not of type float"),
        ({"rope_parameters": [1]}, r"config\.json: rope_parameters=\[1\] is not of type dict"),
        ({"rope_parameters": {"rope_type": "llama3"}}, r"factor=None is not of type float"),
        ({"rope_parameters": {"rope_theta": "x"}}, r"rope_theta='x' is not of type float"),
    ],
    ids=str,
)
def test_a_hugging_face_configuration_of_nonsense_is_refused(change: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_config(LLAMA | change, Path("config.json"), None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mlp_bias": True}, r"mlp_bias=True is not supported, only False or None is"),
        ({"is_causal": False}, r"is_causal=False is not supported"),
        ({"quantization_config": {"bits": 4}}, r"quantization_config={'bits': 4} is not supported"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor=0\.5 is not supported"),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, r"rope_scaling: partial_rotary_factor"),
        ({"rope_scaling": {"full_attention": {}}}, r"full_attention has settings of its own"),
        ({"rope_scaling": {"type": "dynamic"}}, r"rope_type='dynamic' is not supported"),
        ({"rope_scaling": {"rope_theta": float("inf")}}, r"rope_theta=inf is not finite"),
        ({"rope_scaling": {"rope_theta": 10**400}}, r"rope_theta=10+\.\.\. is not finite"),
        ({"layer_types": ["chunked_attention"]}, r"layer_types=\['chunked_attention'\] is not"),
        ({"layer_types": 4}, r"layer_types=4 is not supported"),
        ({"use_sliding_window": True}, r"use_sliding_window=True with sliding_window=None is not"),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 511},
            r"sliding_window=511 is not supported for a context of 512 tokens: choose --context 51",
        ),
        ({"auto_map": {"AutoModelForCausalLM": "a.B"}}, r"names a program .* delete auto_map"),
    ],
    ids=str,
)
def test_what_would_be_computed_otherwise_is_refused(change: dict, said: str) -> None:
    with pytest.raises(UserError, match=rf"^config\.json: .*{said}"):
        read_config(LLAMA | change, Path("config.json"), None)


def test_a_window_that_is_no_shorter_than_the_context_changes_nothing() -> None:
    for window, context in ((512, None), (16, 16)):
        settings = LLAMA | {"use_sliding_window": True, "sliding_window": window}
        assert read_config(settings, Path("config.json"), context).block_size == window


QUANTISED = [torch.int8, torch.float8_e4m3fn, torch.float4_e2m1fn_x2]


@pytest.mark.parametrize("kind", QUANTISED, ids=str)
def test_quantised_weights_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    values = torch.ones(2, dtype=torch.int8).view(kind)
    save_file({"a": values}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=rf"a is of {kind}, as in a quantised model"):
        read_weights(tmp_path, {"a"})["a"]


def test_a_hugging_face_configuration_that_lacks_a_key_is_refused() -> None:
    for key in ("hidden_size", "vocab_size", "num_hidden_layers"):
        with pytest.raises(UserError, match=rf"config\.json lacks {key}"):
            read_config({k: v for k, v in LLAMA.items() if k != key}, Path("config.json"), None)


@pytest.mark.parametrize(
    "index", [{"weight_map": []}, {"weight_map": {"a": 1}}, {}, {"weight_map": None}], ids=str
)
def test_an_index_whose_weight_map_is_none_is_refused(tmp_path: Path, index: dict) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"index\.json: weight_map.* is not of type"):
        read_weights(tmp_path, {"a"})


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{}", '{"model": [], "added_tokens": 3}'])
def test_a_tokenizer_json_of_nonsense_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json is (damaged|not in)") as refusal:
        read_tokenizer(tmp_path, 100)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("value", [[], "4", None, 4.0, 10**30], ids=str)
def test_layers_that_are_no_number_of_layers_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UserError, match=r"num_hidden_layers|n_layer"):
        read_config(LLAMA | {"num_hidden_layers": value}, tmp_path / "config.json", None)
