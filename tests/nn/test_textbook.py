"""The textbook systems: each equals a plain reference that was written from its document, and
keeps what the document says of sizes, positions, masks and dropout. See docs/textbook.md."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from conftest import ROOT
from reference import annotated, handbook, original, vaswani, wayland
from reference.names import NAMES
from test_model import difference
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.config import PRESETS, TRANSLATORS, ModelConfig, Seq2SeqConfig
from gptcore.nn import build_model, count_parameters
from gptcore.nn.gpt import whole_sequence

REFERENCES: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "wayland": lambda c: wayland.Published(c.vocab_size, c.n_embd, c.n_layer, c.n_head),
    "wayland_post": lambda c: wayland.Article(c.vocab_size, c.n_embd, c.n_layer, c.n_head),
    "annotated": lambda c: annotated.DecoderModel(c.vocab_size),
    "vaswani": lambda c: vaswani.Transformer(c.source_vocab_size, c.vocab_size, seq_len=32),
    "original": lambda c: original.Transformer(c.vocab_size),
    "handbook": lambda c: handbook.Transformer(c.vocab_size, 32, c.n_embd, c.n_head, c.n_layer),
}
TEXTBOOK = [*REFERENCES, "translator"]


def fewer_tokens(config: ModelConfig) -> ModelConfig:
    """The document's sizes with a small vocabulary, of its own for each side where it can be."""
    if not isinstance(config, Seq2SeqConfig):
        return dataclasses.replace(config, vocab_size=150)
    source = 150 if config.shared_embeddings else 120
    return dataclasses.replace(config, vocab_size=150, source_vocab_size=source)


def small(config: ModelConfig, **changes: object) -> ModelConfig:
    """The same kind of model, quick to run; its encoder is deeper than its decoder."""
    if isinstance(config, Seq2SeqConfig):
        changes |= {"n_encoder_layer": 3}
    sizes = {"block_size": 32, "n_layer": 2, "n_embd": 16 * config.n_head, "n_inner": 80}
    return dataclasses.replace(fewer_tokens(config), **sizes, **changes)


def make(config: ModelConfig) -> nn.Module:
    """A model whose every parameter matters, norms and biases included."""
    model = build_model(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
            elif name.endswith(".bias"):
                parameter.uniform_(-0.5, 0.5, generator=generator)
            else:
                parameter.uniform_(0.5, 1.5, generator=generator)
    return model


def random_ids(vocab_size: int, batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(vocab_size, (batch, length), generator=generator)


def mask_of(lengths: list[int]) -> Tensor:
    """(B, max(lengths)), 1 for real tokens, padding on the right."""
    return (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()


def inputs_of(config: ModelConfig, T: int = 12) -> dict[str, Tensor]:
    """Arguments of `forward`: three rows; of an encoder-decoder, padded on both sides."""
    ids = random_ids(config.vocab_size, 3, T)
    if not isinstance(config, Seq2SeqConfig):
        return whole_sequence(ids)
    return {
        "source_ids": random_ids(config.source_vocab_size, 3, 17),
        "source_mask": mask_of([9, 17, 1]),
        "input_ids": ids,
        "attention_mask": mask_of([T, 1, T - 5]),
    }


def logits_of(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    result = model(**inputs)
    return result if isinstance(model.config, Seq2SeqConfig) else result[0]


def test_every_textbook_preset_has_a_reference() -> None:
    assert set(REFERENCES) == set(NAMES) == set(TEXTBOOK) - {"translator"}
    assert set(TEXTBOOK) == set(PRESETS) - {"tiny", "nano", "small", "base"}


def with_our_weights(reference: nn.Module, model: nn.Module, preset: str) -> nn.Module:
    """Every parameter of both sides is used, and each once; a tied one is one parameter."""
    ours, theirs = dict(model.named_parameters()), {}
    names = NAMES[preset](model.config.n_layer, model.config.n_head)
    assert set(names) == set(ours)
    for name, targets in names.items():
        for target, part in zip(targets, ours[name].detach().chunk(len(targets)), strict=True):
            key = target.removesuffix("^T")
            assert key not in theirs
            theirs[key] = part if key == target else part.T
    assert set(theirs) == {name for name, _ in reference.named_parameters()}
    reference.load_state_dict(theirs)
    return reference.eval()


@pytest.mark.parametrize("preset", REFERENCES)
@torch.inference_mode()
def test_logits_equal_those_of_the_document(preset: str) -> None:
    config = fewer_tokens(PRESETS[preset])
    model = make(config).double()  # twelve layers of rounding would hide a small mistake
    reference = with_our_weights(REFERENCES[preset](config).double(), model, preset)
    inputs = inputs_of(config)
    ours = logits_of(model, inputs)
    assert ours.std() > 0.5, "logits that say something"
    if isinstance(config, Seq2SeqConfig):
        source_mask, mask = inputs["source_mask"].bool(), inputs["attention_mask"].bool()
        before = torch.ones(mask.shape[1], mask.shape[1]).tril().bool()
        theirs = reference(
            inputs["source_ids"],
            source_mask[:, None, None, :],
            inputs["input_ids"],
            before & mask[:, None, None, :],
        )
    else:
        theirs = reference(inputs["input_ids"])
    if preset == "annotated":
        ours = F.log_softmax(ours, dim=-1)  # the document's generator ends with it
    assert difference(ours, theirs) < 1e-5


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("wayland", 13_307_494),
        ("wayland_post", 13_308_902),
        ("annotated", 70_428_753),
        ("vaswani", 86_198_074),  # as the document prints it
        ("original", 63_045_632),
        ("handbook", 55_918_592),
        ("translator", 9_573_888),
    ],
)
def test_a_preset_has_as_many_parameters_as_its_document(preset: str, count: int) -> None:
    config = PRESETS[preset]
    with torch.device("meta"):
        assert count_parameters(build_model(config)) == count
        if preset in REFERENCES:
            assert sum(p.numel() for p in REFERENCES[preset](config).parameters()) == count
    page = ROOT / "docs" / "textbook.md"
    assert f"`{preset}` | {count:,} |" in page.read_text(encoding="utf-8")


def test_sinusoidal_positions_are_those_that_the_document_prints() -> None:
    """Program 1.2 prints them for 4 dimensions."""
    table = build_model(dataclasses.replace(PRESETS["vaswani"], n_embd=4, n_head=1, n_kv_head=1))
    printed = [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0100, 0.9999],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
        [-0.7568, -0.6536, 0.0400, 0.9992],
        [-0.9589, 0.2837, 0.0500, 0.9988],
        [-0.2794, 0.9602, 0.0600, 0.9982],
        [0.6570, 0.7539, 0.0699, 0.9976],
    ]
    assert difference(table.position.table[:8], torch.tensor(printed)) < 1e-4


def test_the_annotated_position_table_has_5000_rows() -> None:
    config = small(PRESETS["annotated"])
    table = build_model(config).position.table
    assert table.shape == (5000, config.n_embd)
    assert difference(table, annotated.PositionalEncoding(config.n_embd).pe[0]) < 1e-3


@pytest.mark.parametrize("chunks", [[1] * 12, [5, 7], [1, 11], [4, 1, 1, 6]], ids=str)
@pytest.mark.parametrize("preset", TEXTBOOK)
@torch.inference_mode()
def test_cached_decoding_equals_the_whole_sequence(preset: str, chunks: list[int]) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    ids, caches, logits, past = inputs["input_ids"], None, [], 0
    if isinstance(config, Seq2SeqConfig):
        inputs["attention_mask"] = torch.ones_like(ids)
        source_mask = inputs["source_mask"]
        memory = model.encode(inputs["source_ids"], source_mask)
    for n in chunks:
        total = past + n
        mask, positions = torch.ones(3, total), torch.arange(past, total).expand(3, n)
        if isinstance(config, Seq2SeqConfig):
            new, caches = model.decode(
                ids[:, past:total], mask, positions, source_mask, caches, memory
            )
        else:
            new, caches = model(ids[:, past:total], mask, positions, caches)
        logits.append(new)
        past = total
    assert difference(torch.cat(logits, dim=1), logits_of(model, inputs)) < 1e-5


def loss_of(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Of guessing the next token, padding left out."""
    ids, logits = inputs["input_ids"], logits_of(model, inputs)
    mask = inputs["attention_mask"].expand(ids.shape)
    targets = ids.masked_fill(mask == 0, -100)[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("preset", TEXTBOOK)
def test_a_few_steps_of_adamw_lower_the_loss(preset: str) -> None:
    torch.manual_seed(0)
    config = small(PRESETS[preset])
    model, inputs = build_model(config), inputs_of(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before = loss_of(model.eval(), inputs).item()
    model.train()
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()
    assert loss_of(model.eval(), inputs).item() < before - 0.1


@pytest.mark.parametrize("preset", TEXTBOOK)
def test_every_parameter_learns(preset: str) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    loss_of(model, inputs).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-6, name


@pytest.mark.parametrize("preset", TRANSLATORS)
@torch.inference_mode()
def test_a_padded_row_equals_the_row_alone(preset: str) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    together = logits_of(model, inputs)
    lengths = zip(inputs["source_mask"].sum(1).tolist(), inputs["attention_mask"].sum(1).tolist())
    for i, (S, T) in enumerate(lengths):
        source, target = inputs["source_ids"][i : i + 1, :S], inputs["input_ids"][i : i + 1, :T]
        alone = model(source, torch.ones(1, S), target, torch.ones(1, T))
        assert difference(together[i, :T], alone[0]) < 1e-5


@pytest.mark.parametrize("preset", TRANSLATORS)
@torch.inference_mode()
def test_what_stands_in_the_padding_does_not_matter(preset: str) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    other = dict(inputs)
    for ids, mask in (("source_ids", "source_mask"), ("input_ids", "attention_mask")):
        other[ids] = inputs[ids].masked_fill(inputs[mask] == 0, 7)
        assert not torch.equal(other[ids], inputs[ids])
    real = inputs["attention_mask"].bool()
    ours, theirs = logits_of(model, inputs)[real], logits_of(model, other)[real]
    assert difference(ours, theirs) < 1e-5


@pytest.mark.parametrize("preset", TRANSLATORS)
@torch.inference_mode()
def test_a_target_sees_the_whole_source_and_what_came_before(preset: str) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])

    def changed(name: str, at: int) -> list[bool]:
        """Of the second row, whose source is not padded: which logits change with this token."""
        ids = inputs[name].clone()
        ids[1, at] = (ids[1, at] + 1) % config.source_vocab_size
        gap = (logits_of(model, inputs) - logits_of(model, inputs | {name: ids})).abs().amax(-1)
        assert gap[[0, 2]].max() < 1e-5, "the other rows"
        return (gap[1] > 1e-5).tolist()

    assert changed("input_ids", 7) == [False] * 7 + [True] * 5
    for at in (0, 8, 16):
        assert all(changed("source_ids", at))


@pytest.mark.parametrize("hidden", ["source_mask", "attention_mask"])
@pytest.mark.parametrize("preset", TRANSLATORS)
def test_a_mask_that_hides_everything_gives_finite_results(preset: str, hidden: str) -> None:
    config = small(PRESETS[preset])
    model, inputs = make(config), inputs_of(config)
    before = logits_of(model, inputs)
    inputs[hidden] = inputs[hidden].clone()
    inputs[hidden][1] = 0
    logits = logits_of(model, inputs)
    assert difference(logits[[0, 2]], before[[0, 2]]) < 1e-5, "the other rows"
    logits.logsumexp(-1).sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


SITES = ("dropout", "attention_dropout", "inner_dropout", "embedding_dropout")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("preset", TEXTBOOK)
@torch.inference_mode()
def test_each_dropout_acts_at_its_site_and_in_training_alone(preset: str, site: str) -> None:
    config = small(PRESETS[preset], **(dict.fromkeys(SITES, 0.0) | {site: 0.5}))
    model, inputs = make(config), inputs_of(config)
    plain = make(dataclasses.replace(config, **{site: 0.0}))
    expected = logits_of(plain, inputs)
    assert torch.equal(logits_of(plain.train(), inputs), expected), "all of them are zero"
    assert torch.equal(logits_of(model, inputs), expected), "not when it is used"

    calls = []
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module.p:
            module.register_forward_hook(lambda module, args, out: calls.append(out.shape))
    assert difference(logits_of(model.train(), inputs), expected) > 1e-2
    n_encoder = getattr(config, "n_encoder_layer", 0)
    n_cross = config.n_layer if n_encoder else 0
    n_block = config.n_layer + n_encoder
    times = {
        "dropout": 2 * n_block + n_cross,
        "attention_dropout": n_block + n_cross,
        "inner_dropout": n_block,
        "embedding_dropout": 2 if n_encoder else 1,
    }
    assert len(calls) == times[site]
    width = {"inner_dropout": config.n_inner}.get(site, config.n_embd)
    is_weights = site == "attention_dropout"
    assert all(len(shape) == 4 if is_weights else shape[-1] == width for shape in calls)
