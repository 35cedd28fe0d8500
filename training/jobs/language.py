"""The training of a language model: start, plan or resume a run.

>>> train_language(options)  # those of training/commands/train.py   # doctest: +SKIP
"""

import argparse
import dataclasses
from typing import Any

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from training.data.sources import OWN, facts_of, name_of, open_corpus, shards_of
from training.formats.places import find_files
from training.jobs.options import asked_of, from_preset, from_run, make_shards, show_text
from training.loop import train
from training.machine.processes import World, join
from training.plan.planner import Planner
from training.run.config import TrainConfig
from training.run.directory import Run, alone_in, check_free, say_next
from training.run.settings import (
    check_same,
    describe,
    fixed_options,
    goes_on,
    read_settings,
)
from training.tasks.language import LanguageModelling


def train_language(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train, and return the summary of the finished run, or None if it was paused.

    Raises UserError for options that do not fit together or do not fit the run.
    """
    with join(options.timeout) as world, alone_in(options.out, world.is_first):
        if goes_on(options):
            summary = go_on(options, world)
        else:
            check_free(options.out)
            planner = open_planner(options, world)
            summary = start(options, world, planner)
        say_next(options.out, "python -m training", summary)
        return summary


def go_on(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    """Resume a run. Raises UserError if other options differ from those of its start."""
    run = Run.load(options.out)
    if options.init or options.preset:
        model, training, _ = from_run(options) if options.init else from_preset(options)
    else:
        model, training = read_settings(options.set, run.model, run.train)
    if options.minutes:  # the clock may have changed decay_share
        training = dataclasses.replace(training, decay_share=run.train.decay_share)
    fixed = fixed_options(options)
    if options.text:
        fixed["source"] = name_of(find_files(options.text))
    check_same(run, model, training, **fixed)
    shards = world.in_turns(lambda: shards_of(run))
    return train(run, LanguageModelling(run, shards, world), resume=True, world=world)


def open_planner(options: argparse.Namespace, world: World) -> Planner | None:
    if options.minutes is None and options.depth is None:
        return None
    for name in ("preset", "init"):
        if getattr(options, name):
            raise UserError(f"--minutes and --depth plan a new training: drop --{name}")
    if world.size > 1:
        raise UserError("--minutes and --depth plan for one process: use them without torchrun")
    return Planner(options.minutes, options.depth, options.set)


def start(
    options: argparse.Namespace, world: World, planner: Planner | None
) -> dict[str, Any] | None:
    if world.is_first:
        show_text(options)
    if planner:
        model, training, encoding = planned(options, planner)
    else:
        model, training, encoding = from_run(options) if options.init else from_preset(options)
    initial = Run.load(options.init).best_checkpoint().model if options.init else None
    shards, source = world.in_turns(lambda: make_shards(options, model, training, encoding))
    model = dataclasses.replace(model, vocab_size=shards.tokenizer.vocab_size)
    data = facts_of(shards, source)
    if planner:
        plan = planner.final(shards)
        print(plan.table())
        model, training = plan.model, plan.training
        expected = round(plan.expected_bits_per_byte, 4)
        data = dataclasses.replace(data, expected_bits_per_byte=expected)
    clock = planner.clock(plan) if planner else None
    run = Run(options.out, model, training, data, clock, fixed_options(options))
    print(describe(model, training))
    return train(run, LanguageModelling(run, shards, world), initial, world=world)


def planned(options: argparse.Namespace, planner: Planner) -> tuple[ModelConfig, TrainConfig, str]:
    """Return the planned model, provisional training settings, and the tokenizer's name.

    The plan settles the training settings after the text is tokenised.
    """
    _, training = read_settings(options.set, ModelConfig(), TrainConfig(micro_batch_size=1))
    plan = planner.first(open_corpus(options.text, training.seed, asked_of(options))[0])
    return plan.model, training, options.tokenizer or OWN
