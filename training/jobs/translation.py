"""The training of a translator: start or resume a run.

>>> train_translator(options)  # those of training/commands/translate.py     # doctest: +SKIP
"""

import argparse
import dataclasses
import math
from typing import Any

from gptcore.bundle import SOURCE_TOKENIZER
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.text.tokenizer import Tokenizer
from training.data.pairs.sentences import (
    TRAINING,
    VALIDATION,
    Pair,
    encode_pairs,
    read_pairs,
    split_pairs,
)
from training.jobs.options import translator_preset
from training.jobs.telling import tell
from training.loop import train
from training.machine.processes import World, join
from training.plan.given import NEW, fitted
from training.plan.pilot import measured_times
from training.plan.scaling import MANY_EPOCHS
from training.run.config import TrainConfig
from training.run.directory import Run, say_next
from training.run.facts import RunData
from training.run.lock import check_free, locked_run
from training.run.settings import describe, fixed_options, goes_on, names_of, resumed
from training.tasks.translation import TranslationTask


def train_translator(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train, and return the summary of the finished run, or None if it was paused.

    Raises UserError for options that do not fit together or do not fit the run.
    """
    with join(options.timeout) as world, locked_run(options.out, world.is_first):
        if goes_on(options):
            summary = go_on(options, world)
        else:
            check_free(options.out)
            summary = start(options, *translator_preset(options), world)
        say_next(options.out, "python -m training translate", summary)
        return summary


def go_on(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    """Resume a run. Raises UserError if given options differ from those of its start."""
    fixed = fixed_options(options)
    if options.pairs:
        fixed["source"] = source_of(options)
    run = resumed(Run.load(options.out), options.set, fixed)
    return train(run, open_task(run, world), resume=True)


def source_of(options: argparse.Namespace) -> str:
    columns = "second column to the first" if options.reverse else "first column to the second"
    return f"{options.pairs.name}, {columns}"


def start(
    options: argparse.Namespace, model: Seq2SeqConfig, training: TrainConfig, world: World
) -> dict[str, Any] | None:
    """Train the tokenizers, say what the training will be, and train."""
    pairs, held_out = open_pairs(options)
    source_tokenizer, tokenizer = train_tokenizers(pairs, model)
    model = dataclasses.replace(
        model, source_vocab_size=source_tokenizer.vocab_size, vocab_size=tokenizer.vocab_size
    )
    shape = source_tokenizer, tokenizer, model.block_size
    learned = encode_pairs(pairs, *shape, "to train on")
    measured = encode_pairs(held_out, *shape, "to measure on")
    pairs, held_out = learned[0], measured[0]
    n_bytes = sum(len(text.encode("utf-8")) for pair in pairs for text in pair)
    data = RunData(
        source_of(options),
        chat=False,
        n_bytes=n_bytes,
        n_pairs=len(pairs),
        reverse=options.reverse,
    )
    reading = NEW._replace(epochs=MANY_EPOCHS)
    training = fitted(training, len(pairs), model.block_size, names_of(options.set), reading)
    run = Run(model, training, data, options=fixed_options(options), path=options.out)
    task = TranslationTask(run, source_tokenizer, tokenizer, learned, measured, world)
    examples = tuple(source for source, _ in held_out[:: len(held_out) // 4 or 1][:4])
    data = dataclasses.replace(
        data, held_out_tokens=task.held_out.n_target_tokens, examples=examples
    )
    run = dataclasses.replace(run, data=data)
    step_s, evaluation_s = measured_times(task, run)
    seconds = step_s * training.steps
    seconds += evaluation_s * math.ceil(training.steps / training.eval_every)
    if world.is_first:
        print(
            f"{len(pairs):,} pairs to train on, {len(held_out):,} to measure on; vocabularies of "
            f"{source_tokenizer.vocab_size:,} and {tokenizer.vocab_size:,} tokens"
        )
        tell(run, task, step_s, seconds, expected="")
        if options.verbose:
            print(describe(model, training))
    return train(run, task)


def open_pairs(options: argparse.Namespace) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs to train on and those to measure on. Raises UserError if there are none."""
    pairs = read_pairs(options.pairs, options.reverse)
    if not options.validation:
        return split_pairs(pairs)
    held_out = read_pairs(options.validation, options.reverse)
    known = {source for source, _ in held_out}  # with any target
    pairs = [pair for pair in pairs if pair[0] not in known]
    if not pairs:
        raise UserError("--validation holds the sources of all pairs: no pair is left to train on")
    return pairs, held_out


def train_tokenizers(pairs: list[Pair], model: Seq2SeqConfig) -> tuple[Tokenizer, Tokenizer]:
    """Train a tokenizer for each side, or a single one if the model shares its embeddings."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    if model.shared_embeddings:
        tokenizer = Tokenizer.train([*sources, *targets], model.vocab_size)
        return tokenizer, tokenizer
    return (
        Tokenizer.train(sources, model.source_vocab_size),
        Tokenizer.train(targets, model.vocab_size),
    )


def open_task(run: Run, world: World = World()) -> TranslationTask:
    """Open the task of an existing run. Raises UserError if the run is not a translator."""
    if not isinstance(run.model, Seq2SeqConfig):
        raise UserError(f"{run.path} is not a translator: use python -m training --resume")
    pairs, held_out = (read_pairs(run.path / name) for name in (TRAINING, VALIDATION))
    tokenizers = Tokenizer.load(run.path / SOURCE_TOKENIZER), run.tokenizer
    learned = encode_pairs(pairs, *tokenizers, run.model.block_size, "to train on")
    measured = encode_pairs(held_out, *tokenizers, run.model.block_size, "to measure on")
    return TranslationTask(run, *tokenizers, learned, measured, world)
