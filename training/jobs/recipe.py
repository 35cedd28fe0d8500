"""The training of a model in the stages of a recipe; see stages.py.

    >>> train_stages(read_recipe("default"), out, None, 300.0, None)  # doctest: +SKIP

A stage reads its mix of datasets, once or in several epochs. It starts from the best weights of the
previous stage, or of a model folder. Each stage is a run in OUT/STAGE. The same command continues
after an interruption.
"""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from gptcore.bundle import read_facts
from gptcore.checks import UserError
from gptcore.facts import EarlierStage
from gptcore.nn.checkpoint import Tensors
from gptcore.text.tokenizer import Tokenizer
from training.data.rows import Rows
from training.data.shards.folder import Shards, prepare
from training.data.sources import SHARDS, run_data_of, shards_of
from training.jobs.keeping import train_and_keep
from training.jobs.stages import Stage, mixed
from training.machine.processes import World, join
from training.run.base import open_base, shape_of
from training.run.directory import Run, begun, say_next
from training.run.facts import Base
from training.run.lock import check_free, locked_run
from training.run.settings import describe, differs, with_free
from training.tasks.language import LanguageModelling

# Share of held-out documents. It is the same in every stage, so that no stage measures on
# documents that another one was trained on: a document's hash decides if it is held out.
HELD_OUT = 0.005


class Before(NamedTuple):
    """What a stage starts from."""

    tokenizer: Tokenizer
    weights: Tensors
    base: Base  # where they are
    datasets: dict[str, float]  # number of passes over each, in all stages so far
    stages: tuple[EarlierStage, ...]


def train_stages(
    stages: list[Stage],
    out: Path,
    data_dir: Path | None,
    timeout_s: float,
    init: Path | None,
) -> dict[str, Any] | None:
    """Train the stages; return the summary of the last one, or None if a stage was paused.

    `init`: the model folder that the first of them starts from. Raises UserError if it has another
    shape, or if a stage has changed since its run was started.
    """
    before, summary = after_folder(init, stages[0]) if init else None, None
    with join(timeout_s) as world:
        for stage, last in zip(stages, (None, *stages)):
            if last:
                before = after_run(Run.load(out / last.name))
            with locked_run(out / stage.name, world.is_first):
                summary = run_stage(stage, out, data_dir, before, world)
            if summary is None:
                print("to continue: run the same command again")
                return None
        say_next(out / stages[-1].name, "", summary)
    return summary


def run_stage(
    stage: Stage, out: Path, data_dir: Path | None, before: Before | None, world: World
) -> dict[str, Any] | None:
    """Start a stage, resume it, or skip it if it is complete; return its summary."""
    print(f"stage {stage.name}: {stage}")
    keep = stage.training.keep
    if keep and not before:
        raise UserError(f"stage {stage.name}: keep={keep}, but it starts without weights to keep")
    path = out / stage.name
    if not begun(path):
        check_free(path)
        shards = world.in_turns(lambda: make_shards(stage, out, data_dir, before))
        run = new_run(stage, path, shards, before)
        print(describe(run.model, run.train))
        task = LanguageModelling(run, shards, world)
        return train_and_keep(run, task, before.weights if before else None)
    run = Run.load(path)
    check_unchanged(stage, run, before)
    if run.is_settled:
        print(f"complete, in {path}")
        return run.summary()
    run = with_free(run, stage.training)
    task = LanguageModelling(run, world.in_turns(lambda: shards_of(run)), world)
    return train_and_keep(run, task, resume=True)


def make_shards(stage: Stage, out: Path, data_dir: Path | None, before: Before | None) -> Shards:
    """Return a stage's shards; the first stage trains the tokenizer for all stages."""
    return prepare(
        mixed(stage, data_dir),
        out / SHARDS,
        stage.model.vocab_size,
        before.tokenizer if before else None,
        HELD_OUT,
    )


def new_run(stage: Stage, path: Path, shards: Shards, before: Before | None) -> Run:
    """Return a new run of the stage's epochs over its mix."""
    model = dataclasses.replace(stage.model, vocab_size=shards.tokenizer.vocab_size)
    n_rows = len(Rows(shards, "train", stage.training.row_length(model.block_size)))
    steps = math.ceil(stage.epochs * n_rows / stage.training.batch_size)
    passes = Counter(before.datasets if before else {})
    passes.update({name: stage.epochs * n for name, n in stage.mix.items()})
    data = dataclasses.replace(
        run_data_of(shards, str(stage)),
        datasets=dict(passes),
        stages=before.stages if before else (),
    )
    training = dataclasses.replace(stage.training, steps=steps)
    return Run(model, training, data, base=before.base if before else None, path=path)


def check_unchanged(stage: Stage, run: Run, before: Before | None) -> None:
    """Raise UserError if the recipe's stage, or what it starts from, differs from its run's."""
    began = run.base.sha256 if run.base else None
    if began != (before.base.sha256 if before else None):
        named = f"with the weights in {run.base.path}" if run.base else "with random weights"
        now = before.base.path if before else "none are named"
        raise UserError(
            f"stage {stage.name}: the run in {run.path} began {named}, not with the present "
            f"ones ({now}): name the same --init, or choose another --out"
        )
    wanted = {"mix": str(stage)} | stage.model.to_dict() | stage.training.to_dict()
    own = {"mix": run.data.source} | run.model.to_dict() | run.train.to_dict()
    for key, value in wanted.items():
        if differs(key, value, own[key]) and key != "steps":  # which the text determines
            raise UserError(
                f"stage {stage.name}: {key}={value}, but the run in {run.path} has "
                f"{key}={own[key]}: restore the recipe, or choose another --out"
            )


def after_run(run: Run) -> Before:
    """Return what the stage after a complete run starts from."""
    summary = run.summary()
    took = {key: summary[key] for key in ("steps", "tokens", "seconds")}
    last = EarlierStage(run.path.name, run.data.source, **took)
    weights, base = open_base(run.path)
    return Before(run.tokenizer, weights, base, run.data.datasets, (*run.data.stages, last))


def after_folder(path: Path, stage: Stage) -> Before:
    """Return what the stage after a model folder starts from. Raises UserError."""
    shape, tokenizer = shape_of(path)
    wanted = dataclasses.replace(stage.model, vocab_size=shape.vocab_size)
    if shape != wanted:
        raise UserError(f"--init {path} has another shape than the recipe's models: {shape}")
    weights, base = open_base(path)
    training = read_facts(path).training
    if training is None:
        return Before(Tokenizer.load(tokenizer), weights, base, {}, ())
    data = training.data
    took = (training.step, training.tokens, training.seconds)
    last = EarlierStage(path.resolve().name, data.source, *took)
    return Before(Tokenizer.load(tokenizer), weights, base, data.datasets, (*data.stages, last))
