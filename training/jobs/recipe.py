"""The training of a model in the stages of a recipe; see stages.py.

    >>> train_stages(read_recipe("default"), Path("runs/default"), None, 300.0)  # doctest: +SKIP

A stage is one pass over its mix of datasets and starts from the best weights of the previous
stage. Each stage is a run in OUT/STAGE. The same command continues after an interruption.
"""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.facts import EarlierStage
from training.data.batches import Rows
from training.data.shards import Shards, prepare
from training.data.sources import facts_of, shards_of
from training.jobs.stages import SHARDS, Stage, mixed
from training.loop import train
from training.machine.processes import World, join
from training.run.directory import Run, alone_in, begun, say_next
from training.run.settings import describe, differs
from training.tasks.language import LanguageModelling

# Share of held-out documents. It is the same in every stage, so that no stage measures on
# documents that another one was trained on: a document's hash decides if it is held out.
HELD_OUT = 0.005


def train_stages(
    stages: list[Stage], out: Path, data_dir: Path | None, timeout_s: float
) -> dict[str, Any] | None:
    """Train all stages; return the summary of the last one, or None if a stage was paused.

    Raises UserError if a stage has changed since its run was started.
    """
    before, summary = None, None
    with join(timeout_s) as world:
        for stage in stages:
            with alone_in(out / stage.name, world.is_first):
                summary = run_stage(stage, out, data_dir, before, world)
            if summary is None:
                print("to continue: run the same command again")
                return None
            before = Run.load(out / stage.name)
        say_next(out / stages[-1].name, "", summary)
    return summary


def run_stage(
    stage: Stage, out: Path, data_dir: Path | None, before: Run | None, world: World
) -> dict[str, Any] | None:
    """Start a stage, resume it, or skip it if it is complete; return its summary."""
    print(f"stage {stage.name}: {stage}")
    path = out / stage.name
    if not begun(path):
        shards = world.in_turns(lambda: make_shards(stage, out, data_dir, before))
        run = new_run(stage, path, shards, before)
        print(describe(run.model, run.train))
        initial = before.best_checkpoint().model if before else None
        return train(run, LanguageModelling(run, shards, world), initial, world=world)
    run = Run.load(path)
    check_unchanged(stage, run)
    if run.is_complete:
        print(f"complete, in {path}")
        return run.summary()
    shards = world.in_turns(lambda: shards_of(run))
    return train(run, LanguageModelling(run, shards, world), resume=True, world=world)


def make_shards(stage: Stage, out: Path, data_dir: Path | None, before: Run | None) -> Shards:
    """Return a stage's shards; the first stage trains the tokenizer for all stages."""
    return prepare(
        mixed(stage, data_dir),
        out / SHARDS,
        stage.model.vocab_size,
        before.tokenizer if before else None,
        HELD_OUT,
    )


def new_run(stage: Stage, path: Path, shards: Shards, before: Run | None) -> Run:
    """Return a new run of one pass over the stage's mix."""
    model = dataclasses.replace(stage.model, vocab_size=shards.tokenizer.vocab_size)
    n_rows = len(Rows(shards, "train", model.block_size))
    steps = math.ceil(n_rows / stage.training.batch_size)
    data = dataclasses.replace(
        facts_of(shards, str(stage)), datasets=all_passes(stage, before), stages=earlier(before)
    )
    return Run(path, model, dataclasses.replace(stage.training, steps=steps), data)


def check_unchanged(stage: Stage, run: Run) -> None:
    """Raise UserError if the recipe's stage differs from the run that it started."""
    wanted = {"mix": str(stage)} | stage.model.to_dict() | stage.training.to_dict()
    own = {"mix": run.data.source} | run.model.to_dict() | run.train.to_dict()
    for key, value in wanted.items():
        if differs(key, value, own[key]) and key not in (
            "vocab_size",
            "steps",
        ):  # the text determines both
            raise UserError(
                f"stage {stage.name}: {key}={value}, but the run in {run.path} has "
                f"{key}={own[key]}: restore the recipe, or choose another --out"
            )


def all_passes(stage: Stage, before: Run | None) -> dict[str, float]:
    """Return the number of passes over each dataset, including the earlier stages."""
    passes = Counter(before.data.datasets if before else {})
    passes.update(stage.mix)
    return dict(passes)


def earlier(before: Run | None) -> tuple[EarlierStage, ...]:
    """Return steps, tokens and seconds of this run and of the stages before it."""
    if before is None:
        return ()
    summary = before.summary()
    took = {key: summary[key] for key in ("steps", "tokens", "seconds")}
    return (*before.data.stages, EarlierStage(before.path.name, before.data.source, **took))
