"""The dial: from a time budget or a depth to a whole plan, and keeping to the time.

    >>> facts = look_at(corpus)                                          # doctest: +SKIP
    >>> plan = make_plan(facts, DEPTHS, Speed(), seconds=1800)           # doctest: +SKIP
    >>> print(plan.table())                                              # doctest: +SKIP

The rule is in training/scaling.py. Speed is measured, by a few real steps of the sizes that look
best. While training, the plan is fitted to the clock once, just before the rate begins to fall.
"""

import bz2
import dataclasses
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import whole_sequence
from gptcore.tokenizer import Tokenizer
from training.config import TrainConfig
from training.corpus import Corpus, document_number, document_text
from training.loop import accumulate_gradients
from training.machine import autocast, keep_freed_memory, pick_device, pick_dtype
from training.optimizer import build_optimizers
from training.scaling import (
    DEPTHS,
    EVALUATIONS,
    MAX_EPOCHS,
    TOKENS_PER_PARAMETER,
    Facts,
    expected_bits_per_byte,
    model_at,
    parameters,
    pass_flops,
    training_at,
    update_flops,
    vocabulary,
)
from training.settings import read_settings
from training.shards import Shards

MIN_MINUTES, MAX_MINUTES = 1.0, 60_000.0
SAMPLE_BYTES = 400_000  # what is compressed, and what the first guess at a vocabulary sees
AIM = 0.985  # of the time wanted: ending is not free either
MEASURED_TOKENS = 2048  # a pass
SAMPLES_S = 3.0  # what an evaluation writes, draws and saves
MIN_STEPS = 30
PREPARING = 4.0  # tokenising, in times of a first pass over the text
FIRST_MEASURED, MAX_MEASURED = 3, 4  # depth; how many depths


@dataclass(frozen=True)
class Plan:
    depth: int
    model: ModelConfig
    training: TrainConfig
    facts: Facts
    step_s: float
    evaluation_s: float  # each, with its samples and its checkpoint

    @property
    def tokens(self) -> int:
        return self.training.steps * self.training.batch_size * self.model.block_size

    @property
    def epochs(self) -> float:
        return self.tokens * self.facts.bytes_per_token / self.facts.n_bytes

    @property
    def seconds(self) -> float:
        """Of the training; what came before it is not in it."""
        return self.training.steps * self.step_s + EVALUATIONS * self.evaluation_s

    @property
    def expected_bits_per_byte(self) -> float:
        return expected_bits_per_byte(self.facts, self.model, self.tokens)

    def table(self) -> str:
        """The plan in a few lines, each with its rule."""
        model, training, n = self.model, self.training, parameters(self.model)
        drop = f", dropout {model.dropout:g}" if model.dropout else ""
        speed = training.batch_size * model.block_size / self.step_s
        rows = [
            (
                "size",
                f"depth {self.depth}: {n:,} parameters, {model.n_layer} layers of {model.n_embd}",
                "the depth of the lowest expected bits per byte",
            ),
            (
                "text",
                f"{self.facts.n_bytes:,} bytes, vocabulary {model.vocab_size:,}, "
                f"context {model.block_size:,}",
                "the vocabulary grows as the cube root of the text",
            ),
            (
                "batch",
                f"{training.batch_size} x {model.block_size:,} tokens",
                "grows as the root of the tokens",
            ),
            ("rate", f"{training.learning_rate:g}{drop}", "falls with depth; dropout by epochs"),
            (
                "steps",
                f"{training.steps:,}: {self.tokens:,} tokens, {self.epochs:.1f} epochs",
                "what the time allows",
            ),
            (
                "time",
                f"{self.seconds / 60:.1f} minutes at {speed:,.0f} tokens/s",
                "measured; fitted to the clock once more before the rate falls",
            ),
            ("expected", f"{self.expected_bits_per_byte:.3f} bits per byte", "docs/scaling.md"),
        ]
        width = max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:9} {value:{width}}  {rule}" for name, value, rule in rows)


def look_at(corpus: Corpus) -> Facts:
    """One pass over a corpus: its size, and how hard a sample of it is."""
    n_bytes, kept, kept_bytes, limit = 0, [], 0, 2**64
    for document in corpus():
        text, number = document_text(document), document_number(document)
        size = len(text.encode("utf-8"))
        n_bytes += size
        if number < limit:
            kept.append((number, text))
            kept_bytes += size
        while kept_bytes > 2 * SAMPLE_BYTES and len(kept) > 1:
            limit //= 2  # an even sample of a stream whose length is not known
            kept = [(number, text) for number, text in kept if number < limit]
            kept_bytes = sum(len(text.encode("utf-8")) for _, text in kept)
    texts = [text for _, text in kept]
    return facts_of(n_bytes, texts)


def facts_of(n_bytes: int, texts: list[str]) -> Facts:
    sample = "\n".join(texts).encode("utf-8")[:SAMPLE_BYTES]
    if len(sample) < 100:
        raise UserError(f"the corpus is too short to plan for: {n_bytes} bytes; give more text")
    size = vocabulary(n_bytes, n_embd=256)
    tokenizer = Tokenizer.train(texts, size)
    n_tokens = sum(len(tokenizer.encode(text)) for text in texts)
    sampled = sum(len(text.encode("utf-8")) for text in texts)
    return Facts(n_bytes, 8 * len(bz2.compress(sample)) / len(sample), sampled / n_tokens)


class Speed:
    """Operations per second of real training steps, measured at a few depths."""

    def __init__(self) -> None:
        self.passes: dict[int, float] = {}
        self.updates: dict[int, float] = {}

    def step_seconds(self, depth: int, model: ModelConfig, batch_size: int) -> float:
        tokens = batch_size * model.block_size
        return tokens * pass_flops(model) / between(self.passes, depth) + update_flops(
            model
        ) / between(self.updates, depth)

    def evaluation_seconds(self, depth: int, model: ModelConfig, n_tokens: float) -> float:
        return SAMPLES_S + n_tokens * pass_flops(model) / 3 / between(self.passes, depth)

    def measure(
        self, depth: int, model: ModelConfig, training: TrainConfig, seconds: float
    ) -> None:
        """Real steps on a few random tokens, for about so many seconds."""
        device = pick_device()
        keep_freed_memory()
        network = build_model(model).to(device).train()
        optimizers = build_optimizers(network, training)
        batch_size = max(1, MEASURED_TOKENS // model.block_size)
        training = dataclasses.replace(training, batch_size=batch_size, micro_batch_size=batch_size)
        ids = torch.randint(model.vocab_size, (2, batch_size, model.block_size))
        passes, updates, end = [], [], time.perf_counter() + seconds
        while len(passes) < 3 or time.perf_counter() < end:
            started = time.perf_counter()
            with autocast(device, pick_dtype(training.dtype, device)):
                accumulate_gradients(
                    network, lambda m, x: m(**whole_sequence(x))[0], tuple(ids), training
                )
            passes.append(time.perf_counter() - started)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            updates.append(time.perf_counter() - started - passes[-1])
        # The first step allocates; the mean of the others, since a busy machine stays busy.
        n = len(passes) - 1
        self.passes[depth] = n * batch_size * model.block_size * pass_flops(model) / sum(passes[1:])
        self.updates[depth] = n * update_flops(model) / sum(updates[1:])


def between(measured: dict[int, float], depth: int) -> float:
    """The value at a depth from those at the nearest measured ones, straight on a log scale."""
    lower = max((d for d in measured if d <= depth), default=min(measured))
    upper = min((d for d in measured if d >= depth), default=max(measured))
    if lower == upper:
        return measured[lower]
    share = math.log(depth / lower) / math.log(upper / lower)
    return measured[lower] ** (1 - share) * measured[upper] ** share


def make_plan(
    facts: Facts,
    depths: Iterable[int],
    speed: Speed,
    seconds: float | None,
    settings: list[str],
) -> Plan:
    """The plan of the lowest expected bits per byte that trains for so many seconds; without
    seconds, for as many tokens as the depth deserves. `settings` are the user's own, as of --set.

    It measures the speed of what looks best until what looks best has been measured.
    """
    depths = list(depths)
    each = 1.0 if seconds is None else min(5.0, max(0.3, seconds * 0.01))
    first = min(depths, key=lambda depth: abs(depth - FIRST_MEASURED))
    if not speed.passes:
        model, training = read_settings(
            settings, *recipe(first, facts, tokens=facts.n_bytes / facts.bytes_per_token)
        )
        speed.measure(first, model, training, each)
    while True:
        plans = [plan_at(depth, facts, speed, seconds, settings) for depth in depths]
        best = min(plans, key=lambda plan: plan.expected_bits_per_byte)
        if best.depth in speed.passes or len(speed.passes) >= MAX_MEASURED:
            return best
        speed.measure(best.depth, best.model, best.training, each)


def recipe(depth: int, facts: Facts, tokens: float) -> tuple[ModelConfig, TrainConfig]:
    model = model_at(depth, facts, tokens * facts.bytes_per_token / facts.n_bytes)
    return model, training_at(model, depth, tokens)


def plan_at(
    depth: int, facts: Facts, speed: Speed, seconds: float | None, settings: list[str]
) -> Plan:
    """The plan of one depth."""
    distinct = facts.n_bytes / facts.bytes_per_token
    evaluated = min(0.05 * distinct, 500_000 / facts.bytes_per_token) + 2**14
    tokens = min(TOKENS_PER_PARAMETER * parameters(model_at(depth, facts)), MAX_EPOCHS * distinct)
    for _ in range(1 if seconds is None else 4):  # batch and dropout depend on the tokens
        model, training = read_settings(settings, *recipe(depth, facts, tokens))
        step_s = speed.step_seconds(depth, model, training.batch_size)
        evaluation_s = speed.evaluation_seconds(depth, model, evaluated)
        if seconds is not None:
            left = max(seconds - EVALUATIONS * evaluation_s, step_s)
            tokens = left / step_s * training.batch_size * model.block_size
    return Plan(depth, model, training, facts, step_s, evaluation_s)


class Planner:
    """The dial of one command: the plan before its text is tokenised, and the one after.

    The first chooses the depth, and with it the vocabulary; the second knows the tokens and
    the time that is left.
    """

    def __init__(self, minutes: float | None, depth: int | None, settings: list[str]):
        if minutes is not None and depth is not None:
            raise UserError("--minutes and --depth are one dial: give only one of them")
        if minutes is not None and not (MIN_MINUTES <= minutes <= MAX_MINUTES):
            raise UserError(
                f"--minutes {minutes:g} is out of range: choose {MIN_MINUTES:g} to {MAX_MINUTES:g}"
            )
        if depth is not None and depth not in DEPTHS:
            raise UserError(f"--depth {depth} is out of range: choose {DEPTHS[0]} to {DEPTHS[-1]}")
        self.started = time.perf_counter()
        self.minutes, self.settings, self.speed = minutes, settings, Speed()
        self.depths = DEPTHS if depth is None else [depth]

    @property
    def budget_s(self) -> float | None:
        """What is left of the time wanted."""
        if self.minutes is None:
            return None
        return self.minutes * 60 * AIM - (time.perf_counter() - self.started)

    def first(self, corpus: Corpus) -> Plan:
        """Before tokenising, which takes about PREPARING times as long as looking."""
        self.facts = look_at(corpus)
        budget_s = self.budget_s
        if budget_s is not None:
            looking_s = time.perf_counter() - self.started
            budget_s = max(budget_s - PREPARING * looking_s, budget_s / 4)
        plan = make_plan(self.facts, self.depths, self.speed, budget_s, self.settings)
        self.depths = [plan.depth]
        return plan

    def final(self, shards: Shards) -> Plan:
        """With the tokenizer and the tokens that there are."""
        n_train, n_val = (shards.manifest["splits"][s]["n_tokens"] for s in ("train", "val"))
        bytes_per_token = shards.manifest["n_bytes"] / (n_train + n_val)
        facts = dataclasses.replace(
            self.facts, n_bytes=round(n_train * bytes_per_token), bytes_per_token=bytes_per_token
        )
        settings = [*self.settings, f"vocab_size={shards.tokenizer.vocab_size}"]
        plan = make_plan(facts, self.depths, self.speed, self.budget_s, settings)
        if self.minutes is not None and plan.training.steps < MIN_STEPS:
            more_s = plan.seconds + MIN_STEPS * plan.step_s - (self.budget_s or 0.0)
            least = math.ceil(self.minutes + more_s / 60)
            raise UserError(
                f"--minutes {self.minutes:g} is too few for this text: reading and tokenising it "
                f"left time for {plan.training.steps} steps; give at least {least}"
            )
        return plan
