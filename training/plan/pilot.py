"""Real steps before a plan: how fast this machine is, and how well a small model learns a text.

>>> speed = Speed()
>>> speed.measure(1, *recipe(1, facts, tokens=1e6), seconds=1.0)     # doctest: +SKIP
>>> round(speed.step_seconds(2, model, batch_size=16), 2)            # doctest: +SKIP
0.21
"""

import dataclasses
import math
import time
from pathlib import Path

import torch
from torch import nn

from gptcore.config import ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import whole_sequence
from training.data.shards import Shards
from training.evaluation.validation import evaluate
from training.loop import accumulate_gradients
from training.machine.devices import autocast, keep_freed_memory, pick_device, pick_dtype, speed_up
from training.optim.optimizers import build_optimizers, rate_factor, set_rate
from training.plan.scaling import Facts, model_at, pass_flops, update_flops
from training.run.config import TrainConfig
from training.run.directory import Run
from training.tasks.language import LanguageModelling

MEASURED_TOKENS = 2048  # a pass
EVALUATED_ROWS = 64
SAMPLES_S = 0.3  # a layer, for what an evaluation writes; drawing and saving take less


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

    def tokens(self, depth: int, facts: Facts, seconds: float) -> float:
        """How many a training of this depth reads in so many seconds."""
        return seconds * between(self.passes, depth) / pass_flops(model_at(depth, facts))

    def evaluation_seconds(self, depth: int, model: ModelConfig, n_tokens: float) -> float:
        return SAMPLES_S * (1 + model.n_layer) + n_tokens * pass_flops(model) / 3 / between(
            self.passes, depth
        )

    def measure(
        self, depth: int, model: ModelConfig, training: TrainConfig, seconds: float
    ) -> None:
        """Real steps on a few random tokens, for about so many seconds."""
        device = pick_device()
        dtype = pick_dtype(training.dtype, device)
        network = fast_model(model, training.seed)
        optimizers = build_optimizers(network, training, dtype)
        batch_size = max(1, MEASURED_TOKENS // model.block_size)
        training = dataclasses.replace(training, batch_size=batch_size, micro_batch_size=batch_size)
        ids = torch.randint(model.vocab_size, (2, batch_size, model.block_size))
        passes, updates, end = [], [], time.perf_counter() + seconds
        while len(passes) < 3 or time.perf_counter() < end:
            started = time.perf_counter()
            with autocast(device, dtype):
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


def fast_model(config: ModelConfig, seed: int) -> nn.Module:
    """In the form that is trained, but not compiled: that pays in long runs alone."""
    keep_freed_memory()
    torch.manual_seed(seed)
    model = build_model(config).to(pick_device()).train()
    speed_up(model, "off", pick_device(), n_tokens=0)
    return model


def between(measured: dict[int, float], depth: int) -> float:
    """The value at a depth from those at the nearest measured ones, straight on a log scale."""
    lower = max((d for d in measured if d <= depth), default=min(measured))
    upper = min((d for d in measured if d >= depth), default=max(measured))
    if lower == upper:
        return measured[lower]
    share = math.log(depth / lower) / math.log(upper / lower)
    return measured[lower] ** (1 - share) * measured[upper] ** share


def pilot_bits_per_byte(shards: Shards, model: ModelConfig, training: TrainConfig) -> float:
    """Train by this small plan and measure a part of the held-out text."""
    task = LanguageModelling(Run(Path(), model, training, {}), shards)
    device = pick_device()
    dtype = pick_dtype(training.dtype, device)
    network = fast_model(model, training.seed)
    optimizers = build_optimizers(network, training, dtype)
    for step in range(training.steps):
        factor = rate_factor(step, training.steps, training.warmup_steps, training.decay_share)
        set_rate(optimizers, training.learning_rate * factor)
        with autocast(device, dtype):  # anew each step: it keeps its casts of the weights
            accumulate_gradients(network, task.logits, task.batch(step), training)
        torch.nn.utils.clip_grad_norm_(network.parameters(), training.grad_clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    rows = range(0, len(task.val_rows), max(1, len(task.val_rows) // EVALUATED_ROWS))
    with autocast(device, dtype):
        return evaluate(network, task.val_rows, 8, rows).bits_per_byte
