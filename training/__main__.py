"""python -m training TEXT... --out runs/NAME: from text files to a trained model.

python -m training translate PAIRS --out runs/NAME is in training/translate.py.
"""

import argparse
import dataclasses
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from gptcore.checks import UserError, check_choice
from gptcore.config import DECODERS, TRANSLATORS, ModelConfig
from gptcore.encodings import NAMES, compact, named_encoding, usage
from gptcore.nn.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint
from gptcore.tokenizer import Tokenizer
from training.config import ENCODINGS, RECIPES, TrainConfig
from training.corpus import Corpus, find_files, read_documents, texts_of
from training.dialogues import dialogues
from training.language import LanguageModelling
from training.loop import train
from training.plan import Planner
from training.run import Run
from training.settings import describe, read_settings, settings_help
from training.shards import load_shards, prepare
from training.translate import run_translation

INTERRUPTED = 130  # the exit code by which a shell knows Ctrl-C
DEFAULT_PRESET = "small"
OWN = "own"  # a tokenizer trained on the text
N_DIALOGUES = 100_000  # of the project's own corpus


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["translate"]:
            summary = run_translation(arguments[1:])
        else:
            summary = run_training(parser().parse_args(arguments))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing was lost that a checkpoint holds", file=sys.stderr)
        return INTERRUPTED
    return INTERRUPTED if summary is None else 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training",
        description="Train a small GPT on text files, or without any on made-up dialogues. "
        "(Translation: python -m training translate --help.)",
        epilog=settings_help(DECODERS["nano"], TrainConfig(), "nano"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "text",
        nargs="*",
        type=Path,
        help='.txt, or .jsonl with "text" or chat "messages", or .gz of them; files or folders',
    )
    result.add_argument("--out", type=Path, help="the run directory to write (runs/PRESET)")
    result.add_argument(
        "--preset", default=None, help=f"{', '.join(DECODERS)} (default: {DEFAULT_PRESET})"
    )
    result.add_argument("--minutes", type=float, help="plan a training that ends in this time")
    result.add_argument("--depth", type=int, help="plan a training of this size, 1 to 24")
    result.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting below"
    )
    result.add_argument("--resume", action="store_true", help="go on with the run in --out")
    result.add_argument("--init", type=Path, help="fine-tune: start from this run's weights")
    result.add_argument(
        "--tokenizer",
        help=f"use this folder's tokenizer, or {' or '.join(NAMES)} (the default of "
        f"{', '.join(ENCODINGS)}), or `own` to train one",
    )
    result.add_argument(
        "--full-vocabulary",
        action="store_true",
        help="keep all ids of a named encoding, not only those that the text uses",
    )
    result.add_argument("--shards", type=Path, help="where token shards are kept (OUT/../shards)")
    return result


def run_training(options: argparse.Namespace) -> dict[str, Any] | None:
    """The summary of the finished run, or None if it was paused."""
    planner = open_planner(options)
    options.out = options.out or Path("runs") / (options.preset or DEFAULT_PRESET)
    if options.resume:
        run = Run.load(options.out)
        if any((options.text, options.set, options.preset, options.init, options.tokenizer)):
            raise UserError(
                "--resume goes on with the run's own text and settings: give only --out"
            )
        return train(run, open_task(run), resume=True)
    if options.out.is_file():
        raise UserError(f"{options.out} is a file: --out names a folder")
    if list_checkpoints(options.out / "checkpoints"):
        raise UserError(f"{options.out} holds a run already: add --resume, or choose another --out")
    model, training, encoding, initial = resolve(options)
    corpus, source = open_corpus(options.text, training.seed)
    if planner:
        model = planner.first(corpus).model
    tokenizer = open_tokenizer(encoding, corpus, options.full_vocabulary)
    folder = options.shards or options.out.parent / "shards"
    shards = prepare(corpus, folder, model.vocab_size, model.block_size, tokenizer)
    model = dataclasses.replace(model, vocab_size=shards.tokenizer.vocab_size)
    data = {
        "source": source,
        "chat": shards.is_chat,
        "shards": str(shards.path.resolve()),
        **{key: shards.manifest[key] for key in ("corpus_sha256", "n_documents", "n_bytes")},
    }
    if planner:
        plan = planner.final(shards)
        print(plan.table())
        model, training = plan.model, plan.training
        data["expected_bits_per_byte"] = round(plan.expected_bits_per_byte, 4)
        if planner.minutes is not None:
            data["budget_s"] = planner.budget_s
    run = Run(options.out, model, training, data)
    print(describe(model, training))
    return train(run, LanguageModelling(run, shards), initial)


def open_planner(options: argparse.Namespace) -> Planner | None:
    if options.minutes is None and options.depth is None:
        return None
    for name in ("preset", "init", "resume"):
        if getattr(options, name):
            raise UserError(f"--minutes and --depth plan a new training: drop --{name}")
    return Planner(options.minutes, options.depth, options.set)


def open_task(run: Run) -> LanguageModelling:
    if "shards" not in run.data:
        raise UserError(f"{run.path} is a translation: python -m training translate --resume")
    return LanguageModelling(run, load_shards(Path(run.data["shards"])))


def resolve(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str, Any]:
    """Model and training settings; which tokenizer; and weights where they are given."""
    if options.init:
        if options.preset or options.tokenizer:
            raise UserError(
                "--init takes shape and tokenizer from that run: drop --preset and so on"
            )
        base = Run.load(options.init)
        if "shards" not in base.data:
            raise UserError(f"--init {options.init} is a translation: name a run on texts")
        folder, _ = newest_checkpoint(base.checkpoints)
        model, training = read_settings(options.set, base.model, TrainConfig())
        return model, training, str(base.path / "tokenizer"), load_checkpoint(folder)[0]
    if options.minutes is not None or options.depth is not None:  # the plan comes with the text
        model, training = read_settings(options.set, ModelConfig(), TrainConfig(micro_batch_size=1))
        return model, training, options.tokenizer or OWN, None
    preset = options.preset or DEFAULT_PRESET
    if preset in TRANSLATORS:
        raise UserError(f"preset {preset} is a translator's: python -m training translate")
    check_choice("preset", preset, DECODERS)
    settings = RECIPES.get(preset, TrainConfig())
    model, training = read_settings(options.set, DECODERS[preset], settings)
    return model, training, options.tokenizer or ENCODINGS.get(preset, OWN), None


def open_tokenizer(name: str, corpus: Corpus, full_vocabulary: bool) -> Tokenizer | None:
    """A folder's tokenizer, or a named encoding with the ids that the corpus uses; None: own."""
    if name == OWN:
        return None
    if name not in NAMES:
        tokenizer = Tokenizer.load(name)
        if not tokenizer.is_ours:
            raise UserError(
                f"--tokenizer {name} is of a model made elsewhere: it cannot be trained on"
            )
        return tokenizer
    try:
        tokenizer = named_encoding(name)
    except UserError as error:
        raise UserError(f"{error}; or train one: --tokenizer {OWN}") from None
    found = usage((text for document in corpus() for text in texts_of(document)), tokenizer)
    print(
        f"{name}: {found.n_tokens:,} tokens, {found.n_distinct:,} distinct, "
        f"largest id {found.largest_id}"
    )
    return tokenizer if full_vocabulary else compact(tokenizer, found.used)


def open_corpus(paths: list[Path], seed: int) -> tuple[Corpus, str]:
    """The documents of the given files, or the project's own dialogues; and a name for them."""
    if not paths:
        return lambda: islice(dialogues(seed), N_DIALOGUES), f"{N_DIALOGUES:,} made-up dialogues"
    files = find_files(paths)
    return lambda: read_documents(files), ", ".join(sorted({file.name for file in files}))


if __name__ == "__main__":
    sys.exit(main())
