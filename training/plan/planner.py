"""The dial: from a time budget or a depth to a whole plan, and keeping to the time.

    >>> facts = look_at(corpus)                                          # doctest: +SKIP
    >>> plan = make_plan(facts, DEPTHS, Speed(), seconds=1800)           # doctest: +SKIP
    >>> print(plan.table())                                              # doctest: +SKIP

The rule is in training/plan/scaling.py. Speed is measured, by a few real steps of the
sizes that look best. While training, the plan is fitted to the clock once, just before the rate
begins to fall.
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
MIN_BYTES, SAMPLE_BYTES = 1000, 400_000
AIM = 0.985  # of the time wanted: ending is not free either
MIN_STEPS = 20
MANY_EPOCHS = 60  # four times R* of the scaling rule: the next ones teach next to nothing
PREPARING = 4.0  # tokenising, in times of a first pass over the text
PILOT_DEPTH, PILOT_SHARE, PILOT_S = 2, 0.035, 60.0  # a share of the time, and no more seconds
MAX_EVALUATIONS, EVALUATION_SHARE = 5, 0.08  # how many, and of the time
MAX_MEASURED = 4  # depths
LEAST_TOKENS = 10_000  # of the pilot


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
        evaluations = math.ceil(self.training.steps / self.training.eval_every)
        return self.training.steps * self.step_s + evaluations * self.evaluation_s

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
                "d layers of 64 d; with --minutes, the d that expects least",
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
                "what the time allows, or 20 tokens a parameter",
            ),
            (
                "time",
                f"{self.seconds / 60:.1f} minutes at {speed:,.0f} tokens/s",
                "measured; fitted to the clock once more before the rate falls",
            ),
            ("expected", f"{self.expected_bits_per_byte:.3f} bits per byte", "docs/scaling.md"),
        ]
        if self.epochs > MANY_EPOCHS:
            rows.append(("note", "more text would help more than more time", "epochs"))
        width = max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:9} {value:{width}}  {rule}" for name, value, rule in rows)


def look_at(corpus: Corpus) -> Facts:
    """One pass over a corpus; how long its tokens are is guessed from its beginning."""
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
    """The plan of the lowest expected bits per byte that trains for so many seconds; without
    seconds, for as many tokens as the depth deserves. `settings` are the user's own, as of --set.

    It measures the speed of what looks best until what looks best has been measured.
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
        if seconds is not None:  # the smallest stands in where none has the time for its steps
            plans = [plan for plan in plans if plan.training.steps >= MIN_STEPS] or plans[:1]
        best = min(plans, key=lambda plan: plan.expected_bits_per_byte)
        if best.depth in speed.passes or len(speed.passes) >= MAX_MEASURED:
            return best
        speed.measure(best.depth, best.model, best.training, each)


def recipe(
    depth: int, facts: Facts, tokens: float, settings: list[str], evaluations: int = 1
) -> tuple[ModelConfig, TrainConfig]:
    """Shape and recipe for so many tokens, with the user's settings in their places."""
    model = model_at(depth, facts, tokens * facts.bytes_per_token / facts.n_bytes)
    batch = TrainConfig(batch_size=batch_at(model, tokens), micro_batch_size=1)
    model, asked = read_settings(settings, model, batch)
    training = training_at(model, depth, tokens, asked.batch_size, evaluations)
    return read_settings(settings, model, training)


def plan_at(
    depth: int, facts: Facts, speed: Speed, seconds: float | None, settings: list[str]
) -> Plan:
    """The plan of one depth."""
    distinct = facts.n_bytes / facts.bytes_per_token
    tokens = min(TOKENS_PER_PARAMETER * parameters(model_at(depth, facts)), MAX_EPOCHS * distinct)
    evaluations = MAX_EVALUATIONS
    for _ in range(1 if seconds is None else 4):  # batch and dropout depend on the tokens
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
    """About what an evaluation reads: the held-out text, and a sample of the other."""
    held_out = min(VALIDATION_SHARE * facts.n_bytes, MAX_VALIDATION_BYTES)
    return held_out / facts.bytes_per_token + TRAIN_SAMPLE_TOKENS


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
        if minutes is not None and any(pair.startswith("steps=") for pair in settings):
            raise UserError("--minutes chooses the steps: drop --set steps, or --minutes")
        self.started = time.perf_counter()
        self.minutes, self.settings, self.speed = minutes, settings, Speed()
        self.depths = DEPTHS if depth is None else [depth]

    @property
    def budget_s(self) -> float | None:
        """What is left of the time wanted."""
        if self.minutes is None:
            return None
        return self.minutes * 60 * AIM - (time.perf_counter() - self.started)

    def clock(self, plan: Plan) -> Clock | None:
        """With what is left of the time wanted; None if a depth is wanted."""
        if self.budget_s is None:
            return None
        return Clock(self.budget_s, plan.evaluation_s / plan.step_s)

    def first(self, corpus: Corpus) -> Plan:
        """Before tokenising, which takes about PREPARING times as long as looking."""
        self.facts = look_at(corpus)
        budget_s = self.budget_s
        if budget_s is not None:
            looking_s = time.perf_counter() - self.started
            budget_s = max(budget_s - PREPARING * looking_s, budget_s / 4)
        self.guess = make_plan(self.facts, self.depths, self.speed, budget_s, self.settings)
        self.depths = [self.guess.depth]
        return self.guess

    def final(self, shards: Shards) -> Plan:
        """With the tokenizer and the tokens that there are."""
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
        """How much harder than the law has it this text is for a small and short training."""
        seconds = PILOT_SHARE * (self.minutes * 60 if self.minutes else self.guess.seconds)
        settings = [f"vocab_size={shards.tokenizer.vocab_size}"]
        settings += [f"dtype={self.guess.training.dtype}"]
        tokens = max(self.speed.tokens(PILOT_DEPTH, facts, min(seconds, PILOT_S)), LEAST_TOKENS)
        model, training = recipe(PILOT_DEPTH, facts, tokens, settings)
        read = training.steps * training.batch_size * model.block_size
        reached = pilot_bits_per_byte(shards, model, training)
        return reached / expected_bits_per_byte(facts, model, read)
