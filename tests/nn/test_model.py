"""The decoder: by default it is a Llama; its cache and padding are exact, all of it learns."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from export.formats.hugging_face import transformers_config
from gptcore.config import DECODERS, ModelConfig
from gptcore.families import CLASSES
from gptcore.nn import build_model, count_parameters
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.llama import from_llama, to_llama

# The presets' heads in models that are quick to run.
SHAPES = {
    name: dataclasses.replace(
        config, vocab_size=300, n_layer=2, block_size=64, n_embd=16 * config.n_head, n_inner=96
    )
    for name, config in DECODERS.items()
}
SHAPES["untied"] = dataclasses.replace(SHAPES["tiny"], tied_embeddings=False)
SHAPES["one head"] = dataclasses.replace(SHAPES["tiny"], n_head=1, n_kv_head=1)
SHAPES["one key"] = dataclasses.replace(SHAPES["tiny"], n_head=8, n_kv_head=1)
SHAPES["learned"] = dataclasses.replace(SHAPES["tiny"], position="learned", feed_forward="gelu")
SHAPES["wide heads"] = dataclasses.replace(SHAPES["tiny"], head_size=32, tied_embeddings=False)
SHAPES["qwen2"] = dataclasses.replace(SHAPES["tiny"], qkv_bias=True, n_kv_head=1)
SHAPES["qwen3"] = dataclasses.replace(SHAPES["tiny"], qk_norm=True, head_size=32)
STRETCHED = {"position": "llama3_rotary", "rope_context": 32, "rope_theta": 500.0}
SHAPES["qwen2, untied"] = dataclasses.replace(SHAPES["untied"], qkv_bias=True, **STRETCHED)
SHAPES["qwen3, untied"] = dataclasses.replace(SHAPES["untied"], qk_norm=True, **STRETCHED)
QWENS = ["qwen2", "qwen3", "qwen2, untied", "qwen3, untied"]
LLAMAS = ["tiny", "nano", "small", "base", "untied", "one head", "one key", "wide heads", *QWENS]
OTHERS = ["wayland", "wayland_post", "annotated", "learned"]
every_shape = pytest.mark.parametrize("shape", SHAPES)
llamas = pytest.mark.parametrize("shape", LLAMAS)
small_llamas = pytest.mark.parametrize("shape", ["tiny", "small", "one head", "one key"])
small_shapes = pytest.mark.parametrize(
    "shape", ["tiny", "small", "one head", "one key", "qwen2", "qwen3", *OTHERS]
)


def make(config: ModelConfig) -> GPT:
    """A model whose every parameter matters: norms are not ones, matrices are not tiny."""
    torch.manual_seed(1)
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model


def some_ids(config: ModelConfig, batch: int, length: int) -> Tensor:
    """(B, T) token ids."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(config.vocab_size, (batch, length), generator=generator)


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_every_preset_of_a_decoder_is_tested() -> None:
    assert set(LLAMAS + OTHERS) == set(SHAPES) >= set(DECODERS)


@pytest.mark.parametrize(
    ("preset", "count"),
    [("tiny", 106_816), ("nano", 1_000_576), ("small", 12_587_904), ("base", 60_512_640)],
)
def test_a_preset_has_as_many_parameters_as_the_formula_says(preset: str, count: int) -> None:
    c = DECODERS[preset]
    attention = 2 * c.n_embd * (c.n_head + c.n_kv_head) * c.head_dim
    layer = attention + 3 * c.n_embd * c.n_inner + 2 * c.n_embd
    with torch.device("meta"):
        model = build_model(c)
        untied = build_model(dataclasses.replace(c, tied_embeddings=False))
    assert c.vocab_size * c.n_embd + c.n_layer * layer + c.n_embd == count
    assert count_parameters(model) == count
    assert count_parameters(untied) == count + c.vocab_size * c.n_embd


@llamas
@torch.inference_mode()
def test_logits_equal_those_of_hugging_faces_own_class(shape: str) -> None:
    config = SHAPES[shape]
    model, ids = make(config), some_ids(config, 3, 40)
    settings = AutoConfig.for_model(**transformers_config(config, {}))
    llama = AutoModelForCausalLM.from_config(settings).eval()
    assert type(llama).__name__ == CLASSES[shape.split(",")[0] if shape in QWENS else "llama"]
    problems = llama.load_state_dict(to_llama(model.state_dict(), config), strict=False)
    assert not problems.unexpected_keys
    assert problems.missing_keys == (["lm_head.weight"] if config.tied_embeddings else [])
    llama.tie_weights()
    ours, theirs = model(**whole_sequence(ids))[0], llama(ids).logits
    assert ours.std() > 0.5, "logits that say something"
    assert difference(ours, theirs) < 1e-5


@llamas
def test_weights_come_back_from_llamas_names_as_the_same_bits(shape: str) -> None:
    config = SHAPES[shape]
    state = make(config).state_dict()
    llama = to_llama(state, config)
    assert len(llama) == config.n_layer * (9 + 3 * config.qkv_bias + 2 * config.qk_norm) + 2 + (
        not config.tied_embeddings
    )
    back = from_llama(llama, config)
    assert set(state) - set(back) == ({"head.weight"} if config.tied_embeddings else set())
    assert all(torch.equal(tensor, state[name]) for name, tensor in back.items())


@small_shapes
@pytest.mark.parametrize("chunks", [[1] * 12, [5, 7], [1, 11], [11, 1], [4, 1, 1, 6]], ids=str)
@torch.inference_mode()
def test_cached_equals_uncached(shape: str, chunks: list[int]) -> None:
    config = SHAPES[shape]
    model, ids = make(config), some_ids(config, 2, 12)
    whole, whole_caches = model(**whole_sequence(ids))
    logits, caches, past = [], None, 0
    for n in chunks:
        total = past + n
        mask, positions = torch.ones(2, total), torch.arange(past, total).expand(2, n)
        new, caches = model(ids[:, past:total], mask, positions, caches)
        logits.append(new)
        past = total
    assert difference(torch.cat(logits, dim=1), whole) < 1e-5
    for cache, expected in zip(caches, whole_caches, strict=True):
        assert cache[0].shape == (2, config.n_kv_head, 12, config.head_dim)
        assert max(map(difference, cache, expected)) < 1e-5


@small_shapes
@torch.inference_mode()
def test_left_padded_rows_equal_single_rows(shape: str) -> None:
    config = SHAPES[shape]
    model, width, lengths = make(config), 9, (9, 4, 1)
    rows = [some_ids(config, 1, n) for n in lengths]
    ids = torch.cat([F.pad(row, (width - n, 0), value=7) for row, n in zip(rows, lengths)])
    mask = torch.cat([F.pad(torch.ones_like(row), (width - row.shape[1], 0)) for row in rows])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits, caches = model(ids, mask, positions)
    after = torch.full((3, 1), 5)
    following, _ = model(after, F.pad(mask, (0, 1), value=1), positions[:, -1:] + 1, caches)
    for i, (row, n) in enumerate(zip(rows, lengths)):
        alone, _ = model(**whole_sequence(torch.cat([row, after[:1]], dim=1)))
        assert difference(logits[i, width - n :], alone[0, :-1]) < 1e-5
        assert difference(following[i], alone[0, -1:]) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fully_masked_row_has_finite_logits_and_gradients(dtype: torch.dtype) -> None:
    config = SHAPES["tiny"]
    model, ids = make(config).to(dtype), some_ids(config, 2, 6)
    mask = torch.tensor([[0] * 6, [1] * 6])
    logits, _ = model(ids, mask, torch.arange(6)[None])
    logits.float().logsumexp(-1).sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@small_shapes
@torch.inference_mode()
def test_no_position_sees_what_comes_after_it_and_each_sees_what_came_before(shape: str) -> None:
    config = SHAPES[shape]
    model, ids = make(config), some_ids(config, 1, 10)
    changed = ids.clone()
    changed[0, 6] = (changed[0, 6] + 1) % config.vocab_size
    before, after = model(**whole_sequence(ids))[0], model(**whole_sequence(changed))[0]
    differs = (before - after).abs().amax(-1)[0] > 1e-4
    assert differs.tolist() == [False] * 6 + [True] * 4


@small_llamas
@torch.inference_mode()
def test_only_distances_between_positions_matter(shape: str) -> None:
    """Rotary positions: a text that is moved along has the same logits."""
    config = SHAPES[shape]
    model, ids = make(config), some_ids(config, 1, 10)
    mask, positions = torch.ones(1, 10), torch.arange(10)[None]
    here, there = model(ids, mask, positions)[0], model(ids, mask, positions + 50)[0]
    stretched = model(ids, mask, positions * 5)[0]
    assert difference(here, there) < 1e-4 < 1e-2 < difference(here, stretched)


@every_shape
def test_gradient_flows_to_every_parameter(shape: str) -> None:
    config = SHAPES[shape]
    model, ids = make(config), some_ids(config, 2, 12)
    logits, _ = model(**whole_sequence(ids[:, :-1]))
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        rows = parameter.grad.reshape(len(parameter), -1).abs().amax(-1)
        if name == "embed.weight":
            rows = rows[ids[:, :-1].unique()]
        elif name == "position.table":
            rows = rows[: ids.shape[1] - 1]
        elif name.endswith("qkv.bias") and "rotary" not in config.position:
            q, k, v = rows.split(module_of(model, name).sizes)
            assert k.max() < 1e-6, "a key's bias moves all scores of a query alike"
            rows = torch.cat([q, v])
        elif ".up." in name and config.feed_forward == "relu":
            rows = rows[rows > 0]
            assert len(rows) > 0.7 * config.n_inner, "a unit may be below zero for every token"
        assert (rows > 0).all(), name


def module_of(model: GPT, name: str) -> nn.Module:
    """The module that a parameter belongs to."""
    return model.get_submodule(name.rpartition(".")[0])


def test_tied_embeddings_are_one_parameter_and_untied_ones_are_two() -> None:
    tied, untied = build_model(SHAPES["tiny"]), build_model(SHAPES["untied"])
    assert tied.head.weight is tied.embed.weight
    assert difference(untied.head.weight, untied.embed.weight) > 0


def test_a_new_model_guesses_evenly_and_its_residual_outputs_are_small() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(DECODERS["nano"], n_layer=8)
    model = build_model(config)
    ids = some_ids(config, 4, 33)
    logits, _ = model(**whole_sequence(ids[:, :-1]))
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    assert loss == pytest.approx(math.log(config.vocab_size), abs=0.15)
    block = model.blocks[3]
    for matrix in (block.attention.out, block.feed_forward.down):
        assert matrix.weight.std().item() == pytest.approx(0.02 / 16**0.5, rel=0.05)
    for matrix in (block.attention.qkv, block.feed_forward.gate_up, model.embed):
        assert matrix.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    "site", ["dropout", "attention_dropout", "inner_dropout", "embedding_dropout"]
)
def test_dropout_acts_in_training_alone(site: str) -> None:
    config = SHAPES["tiny"]
    plain, dropping = make(config), make(dataclasses.replace(config, **{site: 0.5}))
    inputs = whole_sequence(some_ids(config, 2, 12))
    assert torch.equal(plain(**inputs)[0], dropping(**inputs)[0]), "not when it is used"
    dropping.train()
    assert difference(dropping(**inputs)[0], dropping(**inputs)[0]) > 1e-2
    plain.train()
    assert torch.equal(plain(**inputs)[0], plain(**inputs)[0]), "not when it is 0"


@pytest.mark.parametrize(
    ("site", "shapes"),
    [
        ("dropout", [(2, 5, 64), (2, 5, 64)]),
        ("attention_dropout", [(2, 2, 10, 5)]),
        ("inner_dropout", [(2, 5, 96)]),
    ],
)
def test_dropout_acts_on_residuals_or_weights_or_the_inner_layer(
    site: str, shapes: list[tuple]
) -> None:
    block = build_model(dataclasses.replace(SHAPES["tiny"], **{site: 0.5})).blocks[0].train()
    calls = []
    for module in block.modules():
        if isinstance(module, nn.Dropout) and module.p:
            module.register_forward_hook(lambda module, args, out: calls.append(tuple(out.shape)))
    x = torch.randn(2, 5, 64)
    block(x, (torch.ones(1, 5, 1, 16), torch.zeros(1, 5, 1, 16)), torch.zeros(1, 1, 10, 5), None)
    assert calls == shapes
