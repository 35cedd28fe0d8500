"""python -m training TEXT... --out runs/NAME: from text files to a trained model.

python -m training TEXT... --minutes 30           plans a training that ends in that time
python -m training prepare TEXT... --shards DIR   only the token shards, to train on elsewhere
python -m training recipe default                 training/commands/recipe.py
python -m training translate PAIRS                training/commands/translate.py
python -m training datasets NAME...               training/datasets/reading.py
python -m training doctor runs/NAME               training/commands/doctor.py
python -m training report runs/NAME...            training/report/report.py
python -m training evaluate DIR                   training/commands/evaluate.py
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from gptcore.checks import UserError, check_choice
from gptcore.config import DECODERS, TRANSLATORS, ModelConfig
from gptcore.encodings import NAMES
from training.commands.doctor import run_doctor
from training.commands.evaluate import run_evaluate
from training.commands.recipe import run_recipe
from training.commands.translate import run_translation
from training.data.corpus import find_files
from training.data.shards import CACHE, Shards, is_finished, prepare
from training.data.sources import (
    OWN,
    facts_of,
    finished_shards,
    name_of,
    open_corpus,
    open_tokenizer,
    shards_folder,
    shards_of,
)
from training.datasets.reading import run_datasets
from training.loop import train
from training.machine.processes import World, join
from training.plan.planner import Planner
from training.report.report import run_report
from training.run.config import ENCODINGS, TRAININGS, TrainConfig
from training.run.directory import Run, begun, check_free, say_next
from training.run.settings import (
    add_common,
    add_set,
    check_same,
    describe,
    fixed_options,
    is_start,
    read_settings,
    settings_help,
)
from training.tasks.language import LanguageModelling

INTERRUPTED = 130  # the exit code by which a shell knows Ctrl-C
DEFAULT_PRESET = "small"


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = COMMANDS.get(arguments[0] if arguments else "", run_training)
    try:
        summary = command(arguments if command is run_training else arguments[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, for one
        print(f"error: {error}{KEPT.get(command, '')}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nstopped{KEPT.get(command, '')}", file=sys.stderr)
        return INTERRUPTED
    return INTERRUPTED if summary is None else 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training",
        description="Train a small GPT on text files, or without any on made-up dialogues. "
        "(Other commands: python -m training recipe, translate, prepare, datasets, evaluate, "
        "doctor, report; each has --help.)",
        epilog=settings_help(DECODERS["nano"], TrainConfig(), "nano"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_text(result)
    result.add_argument("--out", type=Path, help="the run directory to write (runs/PRESET)")
    result.add_argument("--minutes", type=float, help="plan a training that ends in this time")
    result.add_argument("--depth", type=int, help="plan a training of this size, 1 to 24")
    add_common(result)
    result.add_argument("--init", type=Path, help="fine-tune: start from this run's weights")
    return result


def preparation_parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training prepare",
        description="Only tokenise texts, into a folder of token shards to train on elsewhere.",
    )
    add_text(result)
    add_set(result)
    return result


def add_text(parser: argparse.ArgumentParser) -> None:
    """What is read, and how it becomes tokens."""
    parser.add_argument(
        "text",
        nargs="*",
        type=Path,
        help='.txt, or .jsonl with "text" or chat "messages", or .gz of them; files or folders '
        "(default: made-up dialogues)",
    )
    parser.add_argument(
        "--preset", default=None, help=f"{', '.join(DECODERS)} (default: {DEFAULT_PRESET})"
    )
    parser.add_argument(
        "--tokenizer",
        help=f"use this folder's tokenizer, or {' or '.join(NAMES)} (the default of "
        f"{', '.join(ENCODINGS)}), or `own` to train one",
    )
    parser.add_argument(
        "--full-vocabulary",
        action="store_true",
        help="keep all ids of a named encoding, not only those that the text uses",
    )
    parser.add_argument(
        "--shards",
        help="where token shards are kept (shards/ beside the run); or without text, finished "
        "ones: a folder or any URL of fsspec's",
    )


def run_training(arguments: list[str]) -> dict[str, Any] | None:
    """The summary of the finished run, or None if it was paused."""
    options = parser().parse_args(arguments)
    options.out = options.out or Path("runs") / (options.preset or DEFAULT_PRESET)
    with join(options.timeout) as world:
        if options.resume and (begun(options.out) or not is_start(options)):
            summary = go_on(options, world)
        else:
            check_free(options.out)
            planner = open_planner(options, world)
            summary = start(options, world, planner)
        say_next(options.out, "python -m training", summary)
        return summary


def go_on(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    """Resume; whatever else is said must be what the run was started with."""
    run = Run.load(options.out)
    if options.init or options.preset:
        model, training, _ = from_run(options) if options.init else from_preset(options)
    else:
        model, training = read_settings(options.set, run.model, run.train)
    if options.minutes:  # the clock may have changed it
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
        data |= {"expected_bits_per_byte": round(plan.expected_bits_per_byte, 4)}
    clock = planner.clock(plan) if planner else None
    run = Run(options.out, model, training, data, clock, fixed_options(options))
    print(describe(model, training))
    return train(run, LanguageModelling(run, shards, world), initial, world=world)


def make_shards(
    options: argparse.Namespace, model: ModelConfig, training: TrainConfig, encoding: str
) -> tuple[Shards, str]:
    """The shards of the given texts, or finished ones; and a name for the texts."""
    if options.shards and is_finished(options.shards) and not options.text:
        return finished_shards(options.shards, options.out / CACHE, encoding), options.shards
    return tokenised(options, options.out.parent / "shards", model, training, encoding)


def tokenised(
    options: argparse.Namespace,
    folder: Path,
    model: ModelConfig,
    training: TrainConfig,
    encoding: str,
) -> tuple[Shards, str]:
    """The shards of the given texts, kept in `folder` unless --shards names one; and their name."""
    folder = shards_folder(options.shards, folder)
    corpus, source = open_corpus(options.text, training.seed)
    tokenizer = open_tokenizer(encoding, corpus, options.full_vocabulary)
    return prepare(corpus, folder, model.vocab_size, model.block_size, tokenizer), source


def run_preparation(arguments: list[str]) -> dict[str, Any]:
    """Only the shards; the facts about them."""
    options = preparation_parser().parse_args(arguments)
    shards, _ = tokenised(options, Path("runs") / "shards", *from_preset(options))
    print(f"{shards.path}: put this folder where you like, and train with --shards FOLDER-OR-URL")
    return shards.manifest


def from_preset(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Model and training settings, and which tokenizer."""
    preset = options.preset or DEFAULT_PRESET
    if preset in TRANSLATORS:
        raise UserError(f"preset {preset} is a translator's: python -m training translate")
    check_choice("preset", preset, DECODERS)
    settings = TRAININGS.get(preset, TrainConfig())
    model, training = read_settings(options.set, DECODERS[preset], settings)
    return model, training, options.tokenizer or ENCODINGS.get(preset, OWN)


def from_run(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """The same, where a run is fine-tuned."""
    if options.preset or options.tokenizer:
        raise UserError("--init takes shape and tokenizer from that run: drop --preset and so on")
    base = Run.load(options.init)
    if "shards" not in base.data:
        raise UserError(f"--init {options.init} is a translation: name a run on texts")
    model, training = read_settings(options.set, base.model, TrainConfig())
    return model, training, str(base.path / "tokenizer")


def planned(options: argparse.Namespace, planner: Planner) -> tuple[ModelConfig, TrainConfig, str]:
    """The same, where a plan is wanted, whose training settings come once the text is tokens."""
    _, training = read_settings(options.set, ModelConfig(), TrainConfig(micro_batch_size=1))
    plan = planner.first(open_corpus(options.text, training.seed)[0])
    return plan.model, training, options.tokenizer or OWN


COMMANDS = {
    "translate": run_translation,
    "prepare": run_preparation,
    "recipe": run_recipe,
    "datasets": run_datasets,
    "doctor": run_doctor,
    "report": run_report,
    "evaluate": run_evaluate,
}
# What a training adds when the system fails or Ctrl-C ends it.
KEPT = dict.fromkeys(
    (run_training, run_translation),
    "; what a checkpoint holds is not lost: the same again with --resume goes on",
) | {run_recipe: "; what a checkpoint holds is not lost: the same again goes on"}
