"""The training of a language model: start, plan or resume a run.

>>> train_language(options, looked)  # both of training/commands/train.py   # doctest: +SKIP
"""

import argparse
import dataclasses
from typing import Any

from gptcore.checks import UserError
from training.data.rows import Rows
from training.data.shards.folder import CACHE, Shards
from training.data.sources import OWN, SHARDS, finished_shards, name_of, run_data_of, shards_of
from training.evaluation.validation import questions
from training.formats.places import find_files
from training.jobs.keeping import train_and_keep
from training.jobs.options import Text, read_text, settings_of, tokenised
from training.jobs.telling import tell
from training.machine.processes import World, join
from training.plan.given import Given
from training.plan.plan import Plan
from training.plan.planner import Planner
from training.run.base import can_chat, first_weights, open_base
from training.run.directory import Run, say_next
from training.run.facts import Base, RunData
from training.run.lock import check_free, locked_run
from training.run.settings import describe, fixed_options, goes_on, names_of, resumed
from training.state import check_unfinished
from training.tasks.language import LanguageModelling

NO_LONGER = (
    "note: the texts hold no conversations, so the model that it begins with will continue texts, "
    "and no longer answer; for answers, give it questions with answers"
)


def train_language(options: argparse.Namespace, looked: Text | None) -> dict[str, Any] | None:
    """Train, and return the summary of the finished run, or None if it was paused.

    `looked`: the files' texts; None for dialogues and finished shards, and to resume a run.
    Raises UserError for options that do not fit together or do not fit the run.
    """
    if options.plan:  # of which nothing is kept
        with join(options.timeout) as world:
            return start(options, looked, world)
    with join(options.timeout) as world, locked_run(options.out, world.is_first):
        if goes_on(options):
            summary = go_on(options, world)
        else:
            check_free(options.out)
            summary = start(options, looked, world)
        say_next(options.out, "python -m training", summary)
        return summary


def go_on(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    """Resume a run. Raises UserError if given options differ from those of its start."""
    fixed = fixed_options(options)
    if options.text:
        fixed["source"] = name_of(find_files(options.text))
    run = resumed(Run.load(options.out), options.set, fixed)
    if run.is_settled and run.data.shards:
        check_unfinished(run)  # before the shards are looked for, which the page deletes
    if run.train.keep:
        first_weights(run)  # which are mixed in at the end: hours later they may not be missing
    shards = world.in_turns(lambda: shards_of(run))
    task = LanguageModelling(run, shards, world)
    return train_and_keep(run, task, resume=True)


def start(options: argparse.Namespace, looked: Text | None, world: World) -> dict[str, Any] | None:
    """Plan a training, say what it will be, and train unless only the plan is asked for."""
    planner, encoding = open_planner(options, looked.seconds if looked else 0.0, world)
    initial, base = open_base(options.init) if options.init else (None, None)
    if base and not base.sha256:
        tell_without_file(options)
    shards, data = open_text(options, looked, planner, encoding, world)
    plan = planner.plan(shards)
    run = new_run(options, plan, shards, data, base)
    task = LanguageModelling(run, shards, world)
    if world.is_first:
        tell(run, task, plan.step_s, plan.seconds, plan.expectation)
        if options.init and not data.chat and can_chat(options.init):
            print(NO_LONGER)
        if options.verbose and isinstance(planner, Planner):
            print(plan.table())
        if options.verbose:
            print(describe(run.model, run.train))
    return {} if options.plan else train_and_keep(run, task, initial)


def new_run(
    options: argparse.Namespace, plan: Plan, shards: Shards, data: RunData, base: Base | None
) -> Run:
    """Return the run of a plan, with its expected loss and example questions for the page."""
    training, expected = plan.training, plan.expected_bits_per_byte
    # Of a few conversations: they are to be known by heart.
    clock = plan.clock if data.chat and data.few_held_out else None
    needed = clock.needed(training.steps) if clock else None
    data = dataclasses.replace(
        data,
        expected_bits_per_byte=expected,
        planned_steps=training.steps,
        needed_steps=needed,
    )
    # Of people's own chats the page shows no line: it may be private, and asks out of the blue.
    # Whose the chats of finished shards are, nobody knows.
    if data.chat and not data.datasets and not options.me and options.text:
        split = "train" if data.few_held_out else "val"
        rows = Rows(shards, split, training.row_length(plan.model.block_size))
        data = dataclasses.replace(data, examples=questions(rows))
    if base and not base.sha256:
        training = dataclasses.replace(training, keep=0.0)
    fixed = fixed_options(options)
    return Run(plan.model, training, data, plan.clock, fixed, base, path=options.out)


def tell_without_file(options: argparse.Namespace) -> None:
    """Say what is not done, as the weights of a run of adapters are in no file.

    Raises UserError if the user asked for it.
    """
    why = (
        "weights in a file, but --init names a run of adapters: export that run, and name the "
        "model folder"
    )
    keep = settings_of(options)[1].keep
    if options.lora:
        raise UserError(f"--lora needs {why}")
    if keep and "keep" in names_of(options.set):
        raise UserError(f"keep={keep:g} needs {why}, or --set keep=0")
    if keep:
        print(f"note: none of the weights before is mixed in, as that needs {why}")


def open_planner(
    options: argparse.Namespace, looked_s: float, world: World
) -> tuple[Planner | Given, str]:
    """Return what plans the settings, and the tokenizer's name. Raises UserError."""
    dials = options.minutes is not None or options.depth is not None
    if dials and world.size > 1:
        raise UserError("--minutes and --depth plan for one process: use them without torchrun")
    if options.init or not dials:
        model, training, encoding = settings_of(options)
        chosen = names_of(options.set)
        return Given(model, training, chosen, options.init, options.minutes, world), encoding
    planner = Planner(options.minutes, options.depth, options.set, looked_s)
    return planner, options.tokenizer or OWN


def open_text(
    options: argparse.Namespace,
    looked: Text | None,
    planner: Planner | Given,
    encoding: str,
    world: World,
) -> tuple[Shards, RunData]:
    """Return finished shards, or the shards of the given texts, and what a run records of them."""
    if options.shards and not options.text:  # they are finished, as check_shards saw
        where, wanted = options.shards, encoding if options.init else options.tokenizer
        cache = options.out / CACHE
        shards = world.in_turns(lambda: finished_shards(where, cache, wanted))
        return shards, run_data_of(shards, where)
    text = looked or read_text(options, planner.seed, world.is_first)
    model = planner.shape(text.survey)
    folder = options.out.parent / SHARDS
    shards = world.in_turns(lambda: tokenised(options, text, folder, model, encoding))
    return shards, run_data_of(shards, text.source, text.datasets)
