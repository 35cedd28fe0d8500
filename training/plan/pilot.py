"""Pilot runs before a plan: they measure training speed, and how hard the text is to learn.

>>> speed = Speed()
>>> speed.measure(1, *settings_at(1, facts, 1e6, settings=[]), seconds=1.0)  # doctest: +SKIP
>>> round(speed.step_seconds(2, model, batch_size=16), 2)            # doctest: +SKIP
0.21
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import torch

from gptcore.config import ModelConfig
from gptcore.nn.gpt import GPT, whole_sequence
from training.data.rows import Rows
from training.data.shards.folder import Shards
from training.data.survey import MAX_VALIDATION_BYTES, VALIDATION_SHARE
from training.evaluation.validation import evaluate
from training.machine.devices import autocast
from training.machine.flops import flops_per_token, update_flops
from training.machine.processes import World
from training.machine.progress import progress, tell_stage, waiting
from training.plan.scaling import (
    LEAST_TOKENS,
    Facts,
    Pilot,
    effective_bytes,
    expected_bits_per_byte,
    model_at,
    settings_at,
)
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData
from training.state import fresh_state
from training.step import step
from training.tasks.language import TRAIN_SAMPLE_TOKENS, LanguageModelling
from training.tasks.translation import TranslationTask

PILOT_DEPTH = 2
PILOT_SHARE, PILOT_S = 0.035, 60.0  # the pilot run's share of the time, and its maximum in seconds
PILOT_TOKENS = 10_000  # fewest training tokens of the pilot run
MEASURED_TOKENS = 2048  # tokens per step of a speed measurement
MEASURING = "measuring the speed of this machine"
PILOTING = "a pilot run, to predict the loss"
EVALUATED_ROWS = 64  # most held-out rows measured after a pilot run
SAMPLES_S = 0.3  # estimated seconds per layer for an evaluation's samples, plots and checkpoint


class Speed:
    """The speed of real training steps, measured at a few depths."""

    def __init__(self) -> None:
        self.passes: dict[int, float] = {}  # FLOPs per second of forward and backward, by depth
        self.updates: dict[int, float] = {}  # FLOPs per second of the optimizer, by depth

    def step_seconds(self, depth: int, model: ModelConfig, batch_size: int) -> float:
        """Return the expected seconds of a step; `batch_size` is in sequences."""
        passing = batch_size * model.block_size * flops_per_token(model)
        passing_s = passing / between(self.passes, depth)
        return passing_s + update_flops(model) / between(self.updates, depth)

    def tokens(self, depth: int, facts: Facts, seconds: float) -> float:
        """Return how many tokens a training of this depth reads in `seconds`."""
        return seconds * between(self.passes, depth) / flops_per_token(model_at(depth, facts))

    def evaluation_seconds(self, depth: int, model: ModelConfig, n_tokens: float) -> float:
        """Return the expected seconds of an evaluation of n_tokens tokens."""
        forward = n_tokens * flops_per_token(model) / 3
        return SAMPLES_S * (1 + model.n_layer) + forward / between(self.passes, depth)

    def measure(
        self,
        depth: int,
        model: ModelConfig,
        training: TrainConfig,
        seconds: float,
        world: World = World(),
        rows: Rows | None = None,
    ) -> None:
        """Take at least three steps on `rows`, for about `seconds`, and note the speed.

        Without rows the tokens are random, and all are learned. The speed is that of each process
        of `world`; several must take just three steps, in 0 seconds.
        """
        state = fresh_state(model, training, world)  # as with all rows that it takes at once
        batch_size = max(1, MEASURED_TOKENS // model.block_size)
        at_once = math.gcd(batch_size, training.micro_batch_size)  # more may not fit the memory
        # A learning rate of 0 takes as long as any other, and cannot diverge.
        training = dataclasses.replace(
            training,
            batch_size=batch_size * world.size,
            micro_batch_size=at_once,
            learning_rate=0.0,
        )
        if rows:  # only what is learned costs logits: about half of a conversation
            batch = rows.batch(i % len(rows) for i in range(batch_size))
        else:
            x, y = torch.randint(model.vocab_size, (2, batch_size, model.block_size))
            batch = x, y
        passed: list[float] = []  # the time at which each step began its update
        state.optimizers[0].register_step_pre_hook(lambda *_: passed.append(time.perf_counter()))
        passes: list[float] = []
        updates: list[float] = []
        end = time.perf_counter() + seconds
        while len(passes) < 3 or time.perf_counter() < end:
            started = time.perf_counter()
            step(state, batch, lambda network, x: network(**whole_sequence(x))[0], training)
            ended = time.perf_counter()
            updated = passed.pop() if passed else ended  # a step without a finite loss has none
            passes.append(updated - started)
            updates.append(ended - updated)
        # Leave out the first step, which allocates memory. Take the mean of the others rather than
        # the best, because a busy machine stays busy.
        n = len(passes) - 1
        passed_flops = batch_size * model.block_size * flops_per_token(model)
        self.passes[depth] = n * passed_flops / sum(passes[1:])
        self.updates[depth] = n * update_flops(model) / max(sum(updates[1:]), 1e-9)


def measured_times(task: TranslationTask, run: Run) -> tuple[float, float]:
    """Return the seconds of a step of all processes, by a few that update nothing, and of an
    evaluation."""
    training = dataclasses.replace(run.train, learning_rate=0.0)
    took = []
    with waiting(MEASURING):
        state = fresh_state(run.model, training, task.world)
        model: Any = state.model
        with autocast(state.device, state.dtype):
            evaluation_s = task.evaluation_seconds(model)
        model.train()
        for _ in range(3):
            started = time.perf_counter()
            step(state, task.batch(0), task.logits, training)
            took.append(time.perf_counter() - started)
    return min(took[1:]), evaluation_s


def between(measured: dict[int, float], depth: int) -> float:
    """Interpolate between the nearest measured depths, linearly on a log-log scale."""
    lower = max((d for d in measured if d <= depth), default=min(measured))
    upper = min((d for d in measured if d >= depth), default=max(measured))
    if lower == upper:
        return measured[lower]
    share = math.log(depth / lower) / math.log(upper / lower)
    return measured[lower] ** (1 - share) * measured[upper] ** share


def pilot_bits_per_byte(shards: Shards, model: ModelConfig, training: TrainConfig) -> float:
    """Train a small model and return the bits per byte of a part of the held-out text."""
    run = Run(model, training, RunData("", chat=False, n_bytes=0), path=Path())  # writes nothing
    task = LanguageModelling(run, shards)
    state = fresh_state(model, training)
    tell_stage(PILOTING)
    for _ in progress(range(training.steps), PILOTING, leave=False):
        step(state, task.batch(state.step), task.logits, training)
    rows = range(0, len(task.val_rows), math.ceil(len(task.val_rows) / EVALUATED_ROWS))
    assert isinstance(state.model, GPT)
    with autocast(state.device, state.dtype):
        return evaluate(state.model, task.val_rows, 8, rows).bits_per_byte


def exact_facts(shards: Shards) -> Facts:
    """Return the facts of the training split of token shards."""
    n_train, n_val = (shards.manifest["splits"][s]["n_tokens"] for s in ("train", "val"))
    each = shards.manifest["n_bytes"] / (n_train + n_val)
    return Facts(round(n_train * each), each)


def evaluated_tokens(facts: Facts) -> float:
    """Return the approximate tokens of an evaluation: held-out text and a training sample."""
    held_out = min(VALIDATION_SHARE * facts.n_bytes, MAX_VALIDATION_BYTES)
    return held_out / facts.bytes_per_token + TRAIN_SAMPLE_TOKENS


def measured_hardness(
    facts: Facts, shards: Shards, speed: Speed, dtype: str, seconds: float
) -> Facts:
    """Return the facts with how hard the text is to learn, by a pilot run.

    `seconds`: the time of the whole training, of which it takes a small share.
    """
    pilot_s = min(PILOT_SHARE * seconds, PILOT_S)
    tokens = max(speed.tokens(PILOT_DEPTH, facts, pilot_s), PILOT_TOKENS)
    settings = [f"vocab_size={shards.tokenizer.vocab_size}", f"dtype={dtype}"]
    model, training = settings_at(PILOT_DEPTH, facts, tokens, settings)
    read = training.steps * training.batch_size * model.block_size
    reached = pilot_bits_per_byte(shards, model, training)
    n_bytes = effective_bytes(read * facts.bytes_per_token, facts.n_bytes)
    return dataclasses.replace(
        facts,
        hardness=reached / expected_bits_per_byte(facts, model, read),
        pilot=Pilot(reached, n_bytes) if read < LEAST_TOKENS else None,
    )
