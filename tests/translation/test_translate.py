"""Translation: the search against exhaustive and uncached ones, the two sessions, bad texts."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from export.verify.translation import load_reference
from gptcore.checks import UserError
from gptcore.config import TRANSLATORS
from gptcore.engine.sampling import log_softmax
from gptcore.nn import build_model
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import beam_search, penalty, target_ends, translate
from training.data.pairs.sentences import read_pairs
from training.run.directory import Run
from training.tasks.translation import VALIDATION

START, END = 9, 0
BYTES = Tokenizer({bytes([b]): b for b in range(256)})


class TableSession:
    """Random logits of V tokens that depend on the whole prefix, noting what it was asked."""

    def __init__(self, seed: int, n_token: int, scale: float = 2.0):
        self.seed, self.n_token, self.scale = seed, n_token, scale
        self.rows: list[tuple[int, ...]] = [()]
        self.widths: list[int] = []

    def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *prefix])
        return self.scale * rng.normal(size=self.n_token)

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        self.rows = [(*self.rows[parent], token) for parent, token in zip(parents, tokens)]
        assert all(row[0] == START for row in self.rows)
        self.widths.append(len(self.rows))
        return np.stack([self.logits(row) for row in self.rows]).astype(np.float32)

    def score(self, ids: Sequence[int]) -> float:
        """Log probability of a sequence."""
        logits = [self.logits((START, *ids[:i])).astype(np.float32)[None] for i in range(len(ids))]
        return float(sum(log_softmax(row)[0, token] for row, token in zip(logits, ids)))


def every_sequence(n_token: int, limit: int) -> Iterator[tuple[int, ...]]:
    """All that end with END within the limit."""
    others = [token for token in range(n_token) if token != END]
    for length in range(limit):
        for body in itertools.product(others, repeat=length):
            yield (*body, END)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("n_token", "limit"), [(2, 6), (3, 4), (4, 3), (5, 1)])
def test_the_widest_search_finds_the_best_of_all_sequences(
    seed: int, n_token: int, limit: int
) -> None:
    session = TableSession(seed, n_token)
    found = beam_search(session, START, END, n_token**limit, limit)
    best = max(
        every_sequence(n_token, limit), key=lambda ids: session.score(ids) / penalty(len(ids))
    )
    assert found == list(best)


def test_the_length_penalty_is_the_papers() -> None:
    for length in (1, 2, 7, 128):
        assert penalty(length) == pytest.approx((5 + length) ** 0.6 / 6**0.6)


def test_the_length_penalty_decides_between_short_and_long() -> None:
    found = [beam_search(TableSession(seed, 3), START, END, 81, 4) for seed in range(40)]
    likeliest = [
        max(every_sequence(3, 4), key=TableSession(seed, 3).score) for seed in range(40)
    ]  # fmt: skip
    longer = sum(len(a) > len(b) for a, b in zip(found, likeliest))
    shorter = sum(len(a) < len(b) for a, b in zip(found, likeliest))
    assert longer > 0 == shorter


@pytest.mark.parametrize("seed", range(20))
def test_one_beam_takes_the_likeliest_token_step_by_step(seed: int) -> None:
    session, prefix = TableSession(seed, 7), [START]
    while len(prefix) <= 12 and (prefix[-1] != END or len(prefix) == 1):
        prefix.append(int(session.logits(tuple(prefix)).argmax()))
    assert beam_search(TableSession(seed, 7), START, END, 1, 12) == prefix[1:]


def plain_search(session: TableSession, beams: int, limit: int) -> list[int]:
    """The documented rule once more, over lists of whole hypotheses."""
    live, done = [()], []
    for length in range(1, limit + 1):
        candidates = [
            (session.score((*ids, token)), (*ids, token))
            for ids in live
            for token in range(session.n_token)
        ]
        candidates.sort(key=lambda pair: -pair[0])
        done += [(s / penalty(length), ids) for s, ids in candidates[:beams] if ids[-1] == END]
        live = [ids for _, ids in candidates if ids[-1] != END][:beams]
        if len(done) >= beams:
            break
    if not done:
        return list(live[0])
    return list(max(done, key=lambda pair: pair[0])[1])


@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_a_narrow_search_follows_its_rule(beams: int) -> None:
    for seed in range(12):
        session = TableSession(seed, 6)
        expected = plain_search(TableSession(seed, 6), beams, 6)
        assert beam_search(session, START, END, beams, 6) == expected
        assert session.widths[0] == 1 and max(session.widths) <= beams


@pytest.mark.parametrize("beams", [1, 3])
def test_the_limit_is_kept_and_an_unfinished_hypothesis_is_returned(beams: int) -> None:
    class Endless(TableSession):
        def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
            return np.where(np.arange(self.n_token) == END, -1e30, super().logits(prefix))

    for limit in (1, 2, 7):
        session = Endless(0, 5)
        ids = beam_search(session, START, END, beams, limit)
        assert len(ids) == limit == len(session.widths) and END not in ids


@pytest.mark.parametrize("beams", [1, 2, 3, 4])
def test_of_equally_likely_tokens_the_first_is_taken(beams: int) -> None:
    class Flat(TableSession):
        def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
            return np.zeros(self.n_token)

    assert beam_search(Flat(0, 300), START, END, beams, 9) == [END]
    unending = beam_search(Flat(0, 300), START, 299, beams, 3)
    assert unending == [0, 0, 0]


class Uncached:
    """A translation session that reads the whole prefix again at each step, row by row."""

    def __init__(self, model: Seq2Seq):
        self.model = model

    def begin(self, source_ids: list[int]) -> None:
        self.source, self.rows = torch.tensor([source_ids]), [[]]

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        self.rows = [[*self.rows[parent], token] for parent, token in zip(parents, tokens)]
        ones = torch.ones_like(self.source)
        targets = [torch.tensor([row]) for row in self.rows]
        outputs = [self.model(self.source, ones, t, torch.ones_like(t)) for t in targets]
        return np.stack([logits[0, -1].numpy() for logits in outputs])


class UncachedTranslator(TorchTranslator):
    def session(self) -> Uncached:
        return Uncached(self.model)


@pytest.fixture(scope="module")
def reference(translator: OnnxTranslator) -> TorchTranslator:
    model = load_reference(translator.bundle)
    return TorchTranslator(model, translator.source_tokenizer, translator.tokenizer)


@pytest.fixture(scope="module")
def sources(translation_run: Run) -> list[str]:
    """Of the held-out pairs, and some that are unlike any pair."""
    held_out = [source for source, _ in read_pairs(translation_run.path / VALIDATION)]
    return [*held_out, "跑", "红红红红红", "Two red dogs", "猫二二二跑跑。。", "x"]


@pytest.mark.parametrize("beams", [1, 4])
def test_pytorch_cached_and_uncached_and_onnx_give_the_same_tokens(
    beams: int, translator: OnnxTranslator, reference: TorchTranslator, sources: list[str]
) -> None:
    uncached = UncachedTranslator(
        reference.model, reference.source_tokenizer, reference.tokenizer
    )  # fmt: skip
    for source in sources:
        expected = translate(reference, source, beams)
        assert translate(translator, source, beams) == expected
        assert translate(uncached, source, beams) == expected


@pytest.mark.parametrize("preset", TRANSLATORS)
@pytest.mark.parametrize("beams", [1, 4])
def test_an_untrained_model_of_any_shape_gives_the_same_tokens_uncached(
    preset: str, beams: int
) -> None:
    sizes = {"vocab_size": 262, "source_vocab_size": 262, "n_layer": 2, "n_encoder_layer": 1}
    config = replace(TRANSLATORS[preset], **sizes, n_embd=32, n_inner=32, block_size=12)
    torch.manual_seed(3)
    network = build_model(config)
    models = [kind(network, BYTES, BYTES) for kind in (TorchTranslator, UncachedTranslator)]
    for text in ("a", "Hello you"):
        cached, uncached = (translate(model, text, beams) for model in models)
        assert cached == uncached and len(cached.target_ids) <= 13


def test_a_translation_tells_its_ids_and_that_it_was_finished(translator: OnnxTranslator) -> None:
    start, end = target_ends(translator.tokenizer)
    text = "睡觉狗红三。"
    result = translate(translator, f"\n {text} ")
    assert result == translate(translator, text) and result.finished
    assert translator.source_tokenizer.decode(result.source_ids) == text
    assert result.source_ids[-1] == translator.source_tokenizer.special["<|end|>"]
    assert result.target_ids[0] == start and result.target_ids[-1] == end
    assert translator.tokenizer.decode(result.target_ids) == result.text


def test_a_translation_that_fills_the_context_is_not_finished(
    translator: OnnxTranslator, reference: TorchTranslator
) -> None:
    source, whole = "跑", translate(translator, "跑")
    n = len(whole.target_ids) - 1
    assert whole.finished and n > len(whole.source_ids)
    short = TorchTranslator(reference.model, reference.source_tokenizer, reference.tokenizer)
    for block_size in range(len(whole.source_ids), n + 2):
        short.config = replace(reference.config, block_size=block_size)
        cut = translate(short, source)
        assert cut.finished is (block_size >= n)
        assert cut.target_ids == whole.target_ids[: block_size + 1]


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_an_empty_text_is_refused(tiny_translator: OnnxTranslator, text: str) -> None:
    with pytest.raises(UserError, match="the text is empty"):
        translate(tiny_translator, text)


def test_a_text_longer_than_the_context_is_refused_with_both_numbers(
    tiny_translator: OnnxTranslator,
) -> None:
    assert (
        len(translate(tiny_translator, "\x01" * 31).source_ids) == tiny_translator.config.block_size
    )
    with pytest.raises(UserError, match=r"the text has 33 tokens, and the model reads 32: shorten"):
        translate(tiny_translator, "\x01" * 32)
    with pytest.raises(UserError, match=r"1,000,000 characters, and 32 tokens hold at most \d+;"):
        translate(tiny_translator, "a" * 1_000_000)


@pytest.mark.parametrize("beams", [0, -1, 17, 1.5, "4", None])
def test_a_number_of_beams_that_makes_no_sense_is_refused(
    tiny_translator: OnnxTranslator, beams: object
) -> None:
    with pytest.raises(UserError, match=r"beams=.* must be a whole number from 1 to 16"):
        translate(tiny_translator, "跑", beams)


ODD = [
    "😀",
    "你好，世界",
    "\x00\x01",
    "ÿþ",
    "<|end|>",
    "<|endoftext|>",
    "\ufffd",
    "Ω≈ç√",
    "a\u202eb",
]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("beams", [1, 4])
def test_characters_that_no_pair_had_give_some_text(
    tiny_translator: OnnxTranslator, text: str, beams: int
) -> None:
    result = translate(tiny_translator, text, beams)
    assert isinstance(result.text, str) and len(result.target_ids) >= 2
    assert max(result.target_ids) < tiny_translator.config.vocab_size
    session = tiny_translator.session()
    session.begin(result.source_ids)
    for token in result.target_ids[:-1]:
        assert np.isfinite(session.step([token], [0])).all()


def test_sixteen_beams_are_possible(tiny_translator: OnnxTranslator) -> None:
    assert translate(tiny_translator, "睡觉狗红三。", beams=16).finished


def test_translations_at_the_same_time_do_not_disturb_each_other(
    tiny_translator: OnnxTranslator,
) -> None:
    jobs = [
        (source, beams) for source in ["跑", "红红红", "Two dogs", *ODD[:5]] for beams in (1, 3)
    ]
    expected = [translate(tiny_translator, *job) for job in jobs]
    results: list[list] = [[] for _ in range(4)]
    barrier = threading.Barrier(4)

    def work(mine: list) -> None:
        barrier.wait()
        mine += [translate(tiny_translator, *job) for job in jobs]

    threads = [threading.Thread(target=work, args=(mine,)) for mine in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == expected for mine in results)
