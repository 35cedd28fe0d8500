"""The shape of a model: presets, checks and the words of the refusals."""

import ast
import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from conftest import ROOT

from gptcore import config as names
from gptcore.checks import UserError, build, check_choice
from gptcore.config import DECODERS, PRESETS, TRANSLATORS, ModelConfig, Seq2SeqConfig
from gptcore.nn import blocks, init, layers

NN = Path(layers.__file__).parent
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_comes_back_from_json_as_it_was(preset: str) -> None:
    config = PRESETS[preset]
    same = build(type(config), json.loads(json.dumps(config.to_dict())))
    assert same == config and type(same) is type(config)


def test_decoders_and_encoder_decoders_are_of_their_own_classes() -> None:
    assert {type(config) for config in DECODERS.values()} == {ModelConfig}
    assert {type(config) for config in TRANSLATORS.values()} == {Seq2SeqConfig}
    assert PRESETS == DECODERS | TRANSLATORS and not set(DECODERS) & set(TRANSLATORS)


def test_a_decoder_is_not_read_from_an_encoder_decoders_values() -> None:
    with pytest.raises(UserError, match="unknown setting 'source_vocab_size'"):
        build(ModelConfig, TRANSLATORS["translator"].to_dict())


@pytest.mark.parametrize("preset", ["tiny", "nano", "small", "base"])
def test_a_preset_has_the_shape_that_hugging_face_and_onnx_runtime_like(preset: str) -> None:
    config = PRESETS[preset]
    assert config.head_dim * config.n_head == config.n_embd
    assert config.head_dim % 8 == 0 and config.n_inner % 16 == 0 and config.vocab_size % 8 == 0
    assert 2.4 < config.n_inner / config.n_embd < 2.8 or preset == "tiny", "8/3 for a gated one"


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["nano"].n_layer = 3


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match=r"unknown setting 'n_heads': did you mean 'n_head'\?"):
        build(ModelConfig, {"n_heads": 4})


def test_an_unknown_preset_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'smal': did you mean 'small'\?.*tiny"):
        check_choice("preset", "smal", PRESETS)


def test_a_name_like_no_other_gets_the_list_without_a_guess() -> None:
    with pytest.raises(UserError) as error:
        check_choice("preset", "zzz", PRESETS)
    assert str(error.value) == f"unknown preset 'zzz': known are {', '.join(PRESETS)}"
    assert "known are tiny, nano, small, base, wayland," in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_layer": 0}, "n_layer=0 is out of range"),
        ({"n_embd": -128}, "n_embd=-128 is out of range"),
        ({"vocab_size": 2**40}, "vocab_size=1099511627776 is out of range"),
        ({"n_inner": 0}, "n_inner=0 is out of range"),
        ({"norm_eps": NAN}, "norm_eps=nan is out of range"),
        ({"norm_eps": 0.0}, "norm_eps=0.0 is out of range"),
        ({"rope_theta": NAN}, "rope_theta=nan is out of range"),
        ({"rope_theta": INF}, "rope_theta=inf is out of range"),
        ({"rope_slow": 4.0}, "rope_slow=4.0 must be less than rope_fast=4.0"),
        ({"dropout": NAN}, "dropout=nan is out of range"),
        ({"dropout": 1.0}, "dropout=1.0 is out of range"),
        ({"dropout": -0.1}, "dropout=-0.1 is out of range"),
        ({"n_layer": True}, "n_layer=True is not of type int"),
        ({"n_layer": 4.0}, "n_layer=4.0 is not of type int"),
        ({"n_layer": NAN}, "n_layer=nan is not of type int"),
        ({"vocab_size": "2048"}, "vocab_size='2048' is not of type int"),
        ({"vocab_size": None}, "vocab_size=None is not of type int"),
        ({"dropout": True}, "dropout=True is not of type float"),
        ({"dropout": "0.1"}, "dropout='0.1' is not of type float"),
        ({"tied_embeddings": 1}, "tied_embeddings=1 is not of type bool"),
        ({"norm": 3}, "unknown norm 3: known are rmsnorm"),
        ({"norm": "rmsnor"}, "unknown norm 'rmsnor': did you mean 'rmsnorm'?"),
        ({"position": "rotory"}, "unknown position 'rotory': did you mean 'rotary'?"),
        ({"feed_forward": "x"}, "unknown feed_forward 'x': known are swiglu"),
        ({"feed_forward": "rel"}, "unknown feed_forward 'rel': did you mean 'relu'?"),
        ({"residual": "pst"}, "unknown residual 'pst': did you mean 'post'?"),
        ({"residual": "sandwich"}, "unknown residual 'sandwich': known are pre, post"),
        ({"init": "xavjer"}, "unknown init 'xavjer': did you mean 'xavier'?"),
        ({"init": "zzz"}, "unknown init 'zzz': known are gpt2, normal, xavier, torch"),
        ({"norm": "layer_norm"}, "unknown norm 'layer_norm': did you mean 'layernorm'?"),
        ({"n_position": -1}, "n_position=-1 is out of range"),
        ({"n_position": 2.0}, "n_position=2.0 is not of type int"),
        ({"n_position": 511, "position": "sinusoidal"}, "n_position=511 is less than block_size"),
        ({"n_position": 1, "position": "learned"}, "n_position=1 is less than block_size=512"),
        ({"attention_dropout": NAN}, "attention_dropout=nan is out of range"),
        ({"inner_dropout": 1.0}, "inner_dropout=1.0 is out of range"),
        ({"embedding_dropout": -0.1}, "embedding_dropout=-0.1 is out of range"),
        ({"embedding_dropout": "0.1"}, "embedding_dropout='0.1' is not of type float"),
        ({"qkv_bias": 1}, "qkv_bias=1 is not of type bool"),
        ({"shared_norm": None}, "shared_norm=None is not of type bool"),
        (
            {"n_embd": 127, "n_head": 1, "n_kv_head": 1, "position": "sinusoidal"},
            "n_embd=127 is odd, and sinusoidal positions come in pairs",
        ),
        ({"n_head": 5}, "n_head=5 does not divide n_embd=128"),
        ({"n_embd": 65}, "n_head=4 does not divide n_embd=65: choose an even n_embd"),
        ({"n_embd": 63, "position": "learned"}, "choose one of [1, 3, 7, 9, 21, 63]"),
        ({"block_size": 1}, "block_size=1 is out of range: choose 2"),
        ({"n_kv_head": 3}, "n_kv_head=3 does not divide n_head=4"),
        ({"n_kv_head": 8}, "n_kv_head=8 does not divide n_head=4"),
        ({"n_embd": 36}, "n_embd / n_head = 9 is odd"),
        ({"n_head": 128}, "n_embd / n_head = 1 is odd"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_value_that_makes_no_sense_is_named(changes: dict, words: str) -> None:
    with pytest.raises(UserError) as error:
        ModelConfig(**changes)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source_vocab_size": 0}, "source_vocab_size=0 is out of range"),
        ({"source_vocab_size": 2.0}, "source_vocab_size=2.0 is not of type int"),
        ({"n_encoder_layer": 0}, "n_encoder_layer=0 is out of range"),
        ({"n_layer": 0}, "n_layer=0 is out of range"),
        ({"residual": "pst"}, "unknown residual 'pst': did you mean 'post'?"),
        (
            {"shared_embeddings": True, "source_vocab_size": 4096},
            "source_vocab_size=4096 differs from vocab_size=2048, but shared_embeddings needs one",
        ),
        ({"shared_embeddings": 1}, "shared_embeddings=1 is not of type bool"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_encoder_decoders_value_that_makes_no_sense_is_named(changes: dict, words: str) -> None:
    with pytest.raises(UserError) as error:
        Seq2SeqConfig(**changes)
    assert words in str(error.value)


def test_vocabularies_may_differ_unless_they_are_shared() -> None:
    assert Seq2SeqConfig(source_vocab_size=300, vocab_size=400).source_vocab_size == 300
    shared = Seq2SeqConfig(source_vocab_size=400, vocab_size=400, shared_embeddings=True)
    assert shared.shared_embeddings


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_a_position_table_has_a_row_for_each_position_or_more(position: str) -> None:
    for n_position in (0, 512, 5000):
        config = ModelConfig(position=position, block_size=512, n_position=n_position)
        rows = len(layers.POSITIONS[position](config).table)
        assert rows == (n_position or 512)


def test_an_odd_size_is_fine_where_positions_are_learned() -> None:
    assert ModelConfig(n_embd=127, n_head=1, n_kv_head=1, position="learned").head_dim == 127


def test_a_whole_number_may_stand_for_a_float() -> None:
    assert ModelConfig(rope_theta=500_000, dropout=0).rope_theta == 500_000


@pytest.mark.parametrize("n_embd", [12, 96, 128, 640])
def test_every_number_of_heads_that_is_offered_is_accepted(n_embd: int) -> None:
    with pytest.raises(UserError, match=f"n_head=7 does not divide n_embd={n_embd}") as error:
        ModelConfig(n_embd=n_embd, n_head=7, n_kv_head=1)
    offered = numbers_offered(error.value)
    assert 1 in offered and 2 in offered
    for n_head in offered:
        assert ModelConfig(n_embd=n_embd, n_head=n_head, n_kv_head=1).n_head == n_head


def test_key_value_heads_may_be_as_many_as_heads_and_are_offered_so() -> None:
    assert ModelConfig(n_head=4, n_kv_head=4).n_kv_head == 4
    with pytest.raises(UserError, match="n_kv_head=3 does not divide") as error:
        ModelConfig(n_head=4, n_kv_head=3)
    assert numbers_offered(error.value) == [1, 2, 4]


def numbers_offered(error: BaseException) -> list[int]:
    """The list at the end of `... choose one of [1, 2, 4]`."""
    return json.loads(re.search(r"choose one of (\[.*\])", str(error))[1])


def test_the_registries_hold_what_the_config_names() -> None:
    assert tuple(layers.NORMS) == get_args(names.Norm)
    assert tuple(layers.POSITIONS) == get_args(names.Position)
    assert tuple(layers.FEED_FORWARDS) == get_args(names.FeedForward)
    assert tuple(blocks.RESIDUALS) == get_args(names.Residual)
    assert tuple(init.INITS) == get_args(names.Init)


# What runs for each batch; the rest of a layer is its constructor.
RUNNING = {"forward", "encode", "decode", "keys_values", "turn"}


def test_no_forward_asks_the_configuration() -> None:
    """What a layer is gets decided in its constructor."""
    running = [
        (path.name, function)
        for path in NN.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name in RUNNING
    ]
    assert {function.name for _, function in running} == RUNNING, "none was renamed"
    assert {file for file, _ in running} >= {
        "attention.py",
        "blocks.py",
        "gpt.py",
        "layers.py",
        "seq2seq.py",
    }
    for file, function in running:
        for node in ast.walk(function):
            asked = [getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "arg", "")]
            assert "config" not in asked, f"{file}:{node.lineno} in {function.name}"


def test_no_file_is_too_long_to_read() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listed.stdout.split() if not name.startswith("tests/")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len(lengths) > 30
    assert [path.name for path, length in lengths.items() if length > 350] == []
