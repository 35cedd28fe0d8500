"""Trainings of a given shape: settings that nobody chose fit the text; the time is predicted.

>>> from training.run.config import TrainConfig
>>> fitted(TrainConfig(), n_rows=1000, row_tokens=256, chosen=()).steps
500
>>> list(doubts(TrainConfig(steps=1000), n_rows=254, n_tokens=65_000, epochs=126))
['126 epochs: above about 60 a text is learned by heart; give more text, or --set steps=476']
"""

import dataclasses
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.system.wording import counted, two_digits
from training.data.rows import Rows
from training.data.shards.folder import Shards
from training.data.survey import Survey
from training.machine.devices import pick_device, pick_dtype
from training.machine.memory import kept_bytes, room
from training.machine.processes import World
from training.machine.progress import waiting
from training.plan.pilot import MEASURING, Speed, evaluated_tokens, exact_facts, measured_hardness
from training.plan.plan import EVALUATIONS, MIN_STEPS, Plan, divided
from training.plan.scaling import MANY_EPOCHS, most_epochs
from training.run.clock import Clock
from training.run.config import TrainConfig
from training.state import held_bytes

MOST_STEPS = 10**9
CPU_KEPT = 2e9  # bytes of a micro-batch: a CPU is no faster with more rows at a time
PILOTED_S = 60.0  # for a shorter training only the time is predicted
SHORT_ROW = 512  # tokens; shorter rows gain nothing
MIN_STEPS_PER_EPOCH = 4  # a small text gets a smaller batch
MAX_RATE = 0.1  # the largest learning rate of any preset or plan is 0.02


class Reading(NamedTuple):
    """How often a text is read at most: epochs, or more of a small one, up to steps and rows."""

    epochs: float
    steps: int
    rows: int = 0  # that all steps together read


# A table of 60 long answers fills six rows, and is known by heart after 600 (docs/log.md).
NEW = Reading(epochs=16, steps=400, rows=700)
# Of trained weights: a short table takes so many steps to be learned by heart. A plain text shall
# not be: they would lose the language that they know.
TUNED, ADAPTED, PLAIN = (Reading(epochs=4, steps=n) for n in (80, 300, MIN_STEPS))


@dataclass(frozen=True)
class Given:
    """The settings of a preset, or of a run whose weights are trained further."""

    model: ModelConfig
    training: TrainConfig
    chosen: Collection[str]  # names of settings that the user gave
    initial: Path | None  # the run or model folder to start from
    minutes: float | None  # the longest time that the steps may take
    world: World

    @property
    def seed(self) -> int:
        return self.training.seed

    def shape(self, found: Survey) -> ModelConfig:
        """Return the model's shape, which does not depend on the text."""
        return self.model

    def plan(self, shards: Shards) -> Plan:
        """Return the plan for tokenised text; a few real steps measure its time.

        If the training is new and long, a pilot run predicts its loss.
        """
        model = dataclasses.replace(self.model, vocab_size=shards.tokenizer.vocab_size)
        training = self.training
        if self.initial and "row_tokens" not in self.chosen:
            row = fitted_row(shards, model.block_size)
            training = dataclasses.replace(training, row_tokens=row)
        shape = dataclasses.replace(model, block_size=training.row_length(model.block_size))
        rows = Rows(shards, "train", shape.block_size)
        n_rows = len(rows)
        answers = ADAPTED if training.lora else TUNED
        further = answers if shards.is_chat else PLAIN
        reading = further if self.initial else NEW
        if self.minutes is not None:  # the text and the time bound the steps, and no preset
            training = dataclasses.replace(training, steps=MOST_STEPS)
        training = fitted(training, n_rows, shape.block_size, self.chosen, reading)
        if self.initial and "micro_batch_size" not in self.chosen:
            training = in_memory(training, shape, self.world)
        speed = Speed()
        with waiting(MEASURING):
            speed.measure(model.n_layer, shape, training, 0.0, self.world, rows)
        facts = exact_facts(shards)
        part = math.ceil(training.batch_size / self.world.size)
        step_s = speed.step_seconds(model.n_layer, shape, part)
        evaluation_s = speed.evaluation_seconds(model.n_layer, shape, evaluated_tokens(facts))
        plan = Plan(model.n_layer, model, training, facts, step_s, evaluation_s)
        if self.minutes is not None:
            plan = in_time(plan, 60 * self.minutes, n_rows, self.chosen)
        if not self.can_foretell(plan):
            return dataclasses.replace(plan, is_foretold=False)
        facts = measured_hardness(facts, shards, speed, training.dtype, plan.seconds)
        return dataclasses.replace(plan, facts=facts)

    def can_foretell(self, plan: Plan) -> bool:
        """Return whether a pilot run, of one process, can predict the loss: the rule is for new
        models and long texts, and a short training is over as soon."""
        is_by_rule = not self.initial and not plan.is_beyond_rule
        return is_by_rule and self.world.size == 1 and plan.seconds >= PILOTED_S


def in_time(plan: Plan, seconds: float, n_rows: int, chosen: Collection[str]) -> Plan:
    """Return a plan of fewer steps if those of `plan` would take longer than `seconds`.

    Its clock keeps to that time. If there was time for hardly a step, evaluations are fewer and the
    batch is smaller. Raises UserError if even steps of one row are too long.
    """
    evaluations, left = divided(seconds, plan.evaluation_s)
    while "batch_size" not in chosen and left / plan.step_s < MIN_STEPS:
        batch = plan.training.batch_size // 2
        if not batch:
            break
        steps = 2 * plan.training.steps  # as many rows in all
        training = dataclasses.replace(plan.training, batch_size=batch, steps=steps)
        plan = dataclasses.replace(plan, training=training, step_s=plan.step_s / 2)
    steps = int(left / plan.step_s)
    if steps < MIN_STEPS:
        least = evaluations * plan.evaluation_s + MIN_STEPS * plan.step_s
        raise UserError(
            f"--minutes {seconds / 60:g} is too few for {MIN_STEPS} steps: give at least "
            f"{two_digits(1.1 * least / 60)}"
        )
    enough = plan.training.steps
    steps = min(steps, enough)
    fewer = dataclasses.replace(plan.training, steps=steps)
    if "eval_every" not in chosen:
        fewer = dataclasses.replace(fewer, eval_every=steps)  # `fitted` divides it
    row = fewer.row_length(plan.model.block_size)
    reading = NEW._replace(epochs=MANY_EPOCHS)
    training = fitted(fewer, n_rows, row, chosen, reading, evaluations)
    clock = Clock(seconds, plan.evaluation_s / plan.step_s, enough)
    return dataclasses.replace(plan, training=training, clock=clock)


def fitted_row(shards: Shards, block_size: int) -> int:
    """Return the tokens of a row for a model whose context may be far longer than the documents.

    It is a power of two that holds nineteen of twenty documents; 0, a whole context, if that is
    short.
    """
    if block_size <= SHORT_ROW:
        return 0
    split = shards.split("train")
    lengths = np.concatenate([np.diff(shard.starts, append=len(shard)) for shard in split])
    row = SHORT_ROW
    enough = min(np.quantile(lengths, 0.95), block_size)
    while row < enough:
        row *= 2
    return 0 if row >= block_size else row


def in_memory(training: TrainConfig, shape: ModelConfig, world: World = World()) -> TrainConfig:
    """Return settings with the largest micro-batch that fits the memory, of one row at least.

    The first process decides for all, as memory differs between them.
    """
    device = pick_device()
    size = pick_dtype(training.dtype, device, world).itemsize
    each = kept_bytes(shape, 1, shape.block_size, size, device.type == "cuda")
    most = room(device, held_bytes(shape, training, world.size))
    if device.type == "cpu":
        most = min(most, CPU_KEPT)
    wanted = min(training.micro_batch_size, training.batch_size)
    divisors = (n for n in range(wanted, 1, -1) if training.batch_size % n == 0)
    n_rows = next((n for n in divisors if n * each <= most), 1)
    [decided] = world.sum(n_rows if world.is_first else 0)
    return dataclasses.replace(training, micro_batch_size=round(decided))


def fitted(
    training: TrainConfig,
    n_rows: int,
    row_tokens: int,
    chosen: Collection[str],
    reading: Reading = NEW,
    evaluations: int = EVALUATIONS,
) -> TrainConfig:
    """Return settings for a text of n_rows rows, which is read as `reading` says.

    It is never read more often than `most_epochs`. `chosen`: names of settings that the user gave;
    these stay.
    """
    batch = training.batch_size
    while "batch_size" not in chosen and batch > max(1, n_rows // MIN_STEPS_PER_EPOCH):
        batch //= 2
    most = max(1, int(most_epochs(n_rows * row_tokens) * n_rows / batch))
    small = min(most, max(reading.steps, math.ceil(reading.rows / batch)))
    enough = max(small, math.ceil(reading.epochs * n_rows / batch))
    steps = training.steps if "steps" in chosen else min(training.steps, enough)
    every = math.ceil(steps / evaluations)
    wanted: dict[str, Any] = {
        "steps": steps,
        "batch_size": batch,
        "micro_batch_size": min(training.micro_batch_size, batch),
        "warmup_steps": min(training.warmup_steps, steps // 10),
        "log_every": min(training.log_every, math.ceil(steps / 20)),
        "eval_every": min(training.eval_every, every),
        "save_every": min(training.save_every, every),
    }
    wanted = {name: value for name, value in wanted.items() if name not in chosen}
    return dataclasses.replace(training, **wanted)


def doubts(training: TrainConfig, n_rows: int, n_tokens: float, epochs: float) -> Iterator[str]:
    """Yield a warning for each setting that cannot be right for a text.

    It has `n_rows` rows (or pairs) of `n_tokens` tokens in all, and is read `epochs` times.
    """
    steps, batch, most = training.steps, training.batch_size, most_epochs(n_tokens)
    if epochs > 1.01 * most:
        enough = round(most * steps / epochs)
        remedy = f"or --set steps={enough}" if enough >= MIN_STEPS else "or a smaller batch_size"
        yield (
            f"{epochs:,.0f} epochs: above about {most:,.0f} a text is learned by heart; give "
            f"more text, {remedy}"
        )
    if batch > n_rows:
        yield (
            f"batch_size={batch}, but the text fills {counted(n_rows, 'row')}: each step reads "
            f"all of them; --set batch_size={max(1, n_rows // MIN_STEPS_PER_EPOCH)}"
        )
    if 0 < steps <= training.warmup_steps:
        yield (
            f"warmup_steps={training.warmup_steps}, but steps={steps}: the learning rate never "
            f"reaches its peak; --set warmup_steps={steps // 10}"
        )
    if training.learning_rate > MAX_RATE:
        yield (
            f"learning_rate={training.learning_rate:g}: above {MAX_RATE} nothing is learned; "
            f"0.001 to 0.02 is usual"
        )
