"""The planner: it turns --minutes or --depth into all settings of a training.

    >>> facts = look_at(corpus)                                          # doctest: +SKIP
    >>> plan = make_plan(facts, DEPTHS, Speed(), seconds=1800)           # doctest: +SKIP
    >>> print(plan.table())                                              # doctest: +SKIP

The scaling rule is in training/plan/scaling.py. The planner measures the speed with a few real
steps of the sizes that look best. During the training, the number of steps is fitted to the clock
once, just before the learning rate begins to fall.
"""

import dataclasses
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import MAX_VALIDATION_BYTES, VALIDATION_SHARE, Corpus, document_text
from training.data.shards import Shards
from training.plan.pilot import Speed, pilot_bits_per_byte
from training.plan.scaling import (
    DEPTHS,
    MAX_EPOCHS,
    PARAMETERS_PER_BYTE,
    TOKENS_PER_PARAMETER,
    Facts,
    batch_at,
    expected_bits_per_byte,
    model_at,
    parameters,
    training_at,
    vocabulary,
)
from training.run.clock import Clock
from training.run.config import TrainConfig
from training.run.settings import read_settings
from training.tasks.language import TRAIN_SAMPLE_TOKENS

MIN_MINUTES, MAX_MINUTES = 0.05, 60_000.0
MIN_BYTES = 1000  # smallest text to plan for
SAMPLE_BYTES = 400_000  # text that trains the tokenizer of the first estimate
AIM = 0.985  # share of the wanted time to plan for; the rest is for writing the results
MIN_STEPS = 20  # fewest steps of a plan
MANY_EPOCHS = 60  # 4 R* of the scaling rule; further epochs teach almost nothing
PREPARING = 4.0  # tokenising takes about this many times as long as a first pass over the text
PILOT_DEPTH = 2
PILOT_SHARE, PILOT_S = 0.035, 60.0  # the pilot run's share of the time, and its maximum in seconds
MAX_EVALUATIONS, EVALUATION_SHARE = 5, 0.08  # evaluations: how many, and their share of the time
MAX_MEASURED = 4  # depths whose speed is measured
LEAST_TOKENS = 10_000  # fewest training tokens of the pilot run


@dataclass(frozen=True)
class Plan:
    """All settings of a training, and the times that they are based on."""

    depth: int
    model: ModelConfig
    training: TrainConfig
    facts: Facts
    step_s: float  # expected seconds per step
    evaluation_s: float  # expected seconds per evaluation, with samples and checkpoint

    @property
    def tokens(self) -> int:
        return self.training.steps * self.training.batch_size * self.model.block_size

    @property
    def epochs(self) -> float:
        return self.tokens * self.facts.bytes_per_token / self.facts.n_bytes

    @property
    def seconds(self) -> float:
        """The expected seconds of the training, without the preparation."""
        evaluations = math.ceil(self.training.steps / self.training.eval_every)
        return self.training.steps * self.step_s + evaluations * self.evaluation_s

    @property
    def expected_bits_per_byte(self) -> float:
        return expected_bits_per_byte(self.facts, self.model, self.tokens)

    def table(self) -> str:
        """Return the plan as a table: what is chosen, its value, and the rule behind it."""
        model, training, n = self.model, self.training, parameters(self.model)
        drop = f", dropout {model.dropout:g}" if model.dropout else ""
        speed = training.batch_size * model.block_size / self.step_s
        rows = [
            (
                "size",
                f"depth {self.depth}: {n:,} parameters, {model.n_layer} layers of {model.n_embd}",
                "d layers of width 64 d; with --minutes, the d with the best expectation",
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
                "grows as the square root of the tokens",
            ),
            (
                "rate",
                f"{training.learning_rate:g}{drop}",
                "falls with depth; dropout grows with the epochs",
            ),
            (
                "steps",
                f"{training.steps:,}: {self.tokens:,} tokens, {self.epochs:.1f} epochs",
                "what the time allows, or 20 tokens per parameter",
            ),
            (
                "time",
                f"{self.seconds / 60:.1f} minutes at {speed:,.0f} tokens/s",
                "measured; the steps are fitted to the clock once more before the rate falls",
            ),
            ("expected", f"{self.expected_bits_per_byte:.3f} bits per byte", "docs/scaling.md"),
        ]
        if self.epochs > MANY_EPOCHS:
            rows.append(("note", "more text would help more than more time", "many epochs"))
        width = max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:9} {value:{width}}  {rule}" for name, value, rule in rows)


def look_at(corpus: Corpus) -> Facts:
    """Count a corpus in one pass, and estimate its bytes per token from its beginning.

    Raises UserError if the corpus is too short to plan for.
    """
    n_bytes, sample, sampled = 0, [], 0
    for document in corpus():
        text = document_text(document)
        size = len(text.encode("utf-8"))
        n_bytes += size
        if sampled < SAMPLE_BYTES:
            sample.append(text)
            sampled += size
    if sampled < MIN_BYTES:
        raise UserError(f"the corpus is too short to plan for: {n_bytes} bytes; give more text")
    tokenizer = Tokenizer.train(sample, vocabulary(n_bytes, n_embd=256))
    return Facts(n_bytes, sampled / sum(len(tokenizer.encode(text)) for text in sample))


def make_plan(
    facts: Facts,
    depths: Iterable[int],
    speed: Speed,
    seconds: float | None,
    settings: list[str],
) -> Plan:
    """Return the plan with the lowest expected bits per byte among `depths`.

    `seconds`: the training time; None: TOKENS_PER_PARAMETER tokens per parameter. `settings`:
    the user's --set options. The speed of the best depth is measured, and the choice repeated,
    until the best depth has been measured.
    """
    depths = list(depths)
    if seconds is not None:
        limit = PARAMETERS_PER_BYTE * facts.n_bytes
        fitting = [d for d in depths if parameters(model_at(d, facts)) <= limit]
        depths = fitting or depths[:1]
    each = 1.0 if seconds is None else min(5.0, max(0.05, seconds * 0.01))
    first = min(depths, key=lambda depth: abs(depth - PILOT_DEPTH))
    if not speed.passes:
        tokens = facts.n_bytes / facts.bytes_per_token
        speed.measure(first, *recipe(first, facts, tokens, settings), each)
    while True:
        plans = [plan_at(depth, facts, speed, seconds, settings) for depth in depths]
        if seconds is not None:  # if no depth has the time for MIN_STEPS, take the smallest
            plans = [plan for plan in plans if plan.training.steps >= MIN_STEPS] or plans[:1]
        best = min(plans, key=lambda plan: plan.expected_bits_per_byte)
        if best.depth in speed.passes or len(speed.passes) >= MAX_MEASURED:
            return best
        speed.measure(best.depth, best.model, best.training, each)


def recipe(
    depth: int, facts: Facts, tokens: float, settings: list[str], evaluations: int = 1
) -> tuple[ModelConfig, TrainConfig]:
    """Return model and training settings for `tokens` tokens; `settings` override the rule."""
    model = model_at(depth, facts, tokens * facts.bytes_per_token / facts.n_bytes)
    batch = TrainConfig(batch_size=batch_at(model, tokens), micro_batch_size=1)
    model, asked = read_settings(settings, model, batch)
    training = training_at(model, depth, tokens, asked.batch_size, evaluations)
    return read_settings(settings, model, training)


def plan_at(
    depth: int, facts: Facts, speed: Speed, seconds: float | None, settings: list[str]
) -> Plan:
    """Return the plan of one depth."""
    distinct = facts.n_bytes / facts.bytes_per_token
    tokens = min(TOKENS_PER_PARAMETER * parameters(model_at(depth, facts)), MAX_EPOCHS * distinct)
    evaluations = MAX_EVALUATIONS
    for _ in range(1 if seconds is None else 4):  # iterate: batch and dropout depend on tokens
        model, training = recipe(depth, facts, tokens, settings, evaluations)
        step_s = speed.step_seconds(depth, model, training.batch_size)
        evaluation_s = speed.evaluation_seconds(depth, model, evaluated_tokens(facts))
        if seconds is not None:
            affordable = int(EVALUATION_SHARE * seconds / evaluation_s)
            evaluations = max(1, min(MAX_EVALUATIONS, affordable))
            left = max(seconds - evaluations * evaluation_s, step_s)
            tokens = left / step_s * training.batch_size * model.block_size
    return Plan(depth, model, training, facts, step_s, evaluation_s)


def evaluated_tokens(facts: Facts) -> float:
    """Return the approximate tokens of an evaluation: held-out text and a training sample."""
    held_out = min(VALIDATION_SHARE * facts.n_bytes, MAX_VALIDATION_BYTES)
    return held_out / facts.bytes_per_token + TRAIN_SAMPLE_TOKENS


class Planner:
    """Plans a training twice: before its text is tokenised, and after.

    The first plan chooses depth and vocabulary; the second one knows the exact number of tokens
    and the time left. Raises UserError for options out of range or in conflict.
    """

    def __init__(self, minutes: float | None, depth: int | None, settings: list[str]):
        if minutes is not None and depth is not None:
            raise UserError("--minutes and --depth both set the size: give only one of them")
        if minutes is not None and not (MIN_MINUTES <= minutes <= MAX_MINUTES):
            raise UserError(
                f"--minutes {minutes:g} is out of range: choose {MIN_MINUTES:g} to {MAX_MINUTES:g}"
            )
        if depth is not None and depth not in DEPTHS:
            raise UserError(f"--depth {depth} is out of range: choose {DEPTHS[0]} to {DEPTHS[-1]}")
        if minutes is not None and any(pair.startswith("steps=") for pair in settings):
            raise UserError("--minutes chooses the steps: drop --set steps, or --minutes")
        self.started = time.perf_counter()
        self.minutes, self.settings, self.speed = minutes, settings, Speed()
        self.depths = DEPTHS if depth is None else [depth]

    @property
    def budget_s(self) -> float | None:
        """The seconds left of --minutes, or None without --minutes."""
        if self.minutes is None:
            return None
        return self.minutes * 60 * AIM - (time.perf_counter() - self.started)

    def clock(self, plan: Plan) -> Clock | None:
        """Return a clock with the time left, or None without --minutes."""
        if self.budget_s is None:
            return None
        return Clock(self.budget_s, plan.evaluation_s / plan.step_s)

    def first(self, corpus: Corpus) -> Plan:
        """Return the plan before tokenising; it leaves time for that. Raises UserError."""
        self.facts = look_at(corpus)
        budget_s = self.budget_s
        if budget_s is not None:
            looking_s = time.perf_counter() - self.started
            budget_s = max(budget_s - PREPARING * looking_s, budget_s / 4)
        self.guess = make_plan(self.facts, self.depths, self.speed, budget_s, self.settings)
        self.depths = [self.guess.depth]
        return self.guess

    def final(self, shards: Shards) -> Plan:
        """Return the plan for tokenised text. Raises UserError if the time is too short."""
        n_train, n_val = (shards.manifest["splits"][s]["n_tokens"] for s in ("train", "val"))
        bytes_per_token = shards.manifest["n_bytes"] / (n_train + n_val)
        facts = dataclasses.replace(
            self.facts, n_bytes=round(n_train * bytes_per_token), bytes_per_token=bytes_per_token
        )
        settings = [*self.settings, f"vocab_size={shards.tokenizer.vocab_size}"]
        facts = dataclasses.replace(facts, hardness=self.hardness(facts, shards))
        plan = make_plan(facts, self.depths, self.speed, self.budget_s, settings)
        if self.minutes is not None and plan.training.steps < MIN_STEPS:
            more_s = plan.seconds + MIN_STEPS * plan.step_s - (self.budget_s or 0.0)
            least = math.ceil(self.minutes + more_s / 60)
            raise UserError(
                f"--minutes {self.minutes:g} is too few for this text: reading and tokenising it "
                f"left time for {plan.training.steps} steps; give at least {least}"
            )
        return plan

    def hardness(self, facts: Facts, shards: Shards) -> float:
        """Return the ratio of measured to expected bits per byte in a pilot run on the text."""
        seconds = PILOT_SHARE * (self.minutes * 60 if self.minutes else self.guess.seconds)
        settings = [f"vocab_size={shards.tokenizer.vocab_size}"]
        settings += [f"dtype={self.guess.training.dtype}"]
        tokens = max(self.speed.tokens(PILOT_DEPTH, facts, min(seconds, PILOT_S)), LEAST_TOKENS)
        model, training = recipe(PILOT_DEPTH, facts, tokens, settings)
        read = training.steps * training.batch_size * model.block_size
        reached = pilot_bits_per_byte(shards, model, training)
        return reached / expected_bits_per_byte(facts, model, read)
