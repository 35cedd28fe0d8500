"""python -m training TEXT... --out runs/NAME: from text files to a trained model.

python -m training translate PAIRS --out runs/NAME is in training/translate.py, and
python -m training doctor runs/NAME in training/doctor.py.
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
from gptcore.tokenizer import Tokenizer
from training.config import ENCODINGS, RECIPES, TrainConfig
from training.corpus import Corpus, find_files, read_documents, texts_of
from training.dialogues import dialogues
from training.doctor import run_doctor
from training.language import LanguageModelling
from training.loop import train
from training.run import Run, begun, check_free
from training.settings import add_common, check_same, describe, read_settings, settings_help
from training.shards import Shards, load_shards, prepare
from training.translate import run_translation
from training.world import World, join

INTERRUPTED = 130  # the exit code by which a shell knows Ctrl-C
DEFAULT_PRESET = "small"
OWN = "own"  # a tokenizer trained on the text
N_DIALOGUES = 100_000  # of the project's own corpus
COMMANDS = {"translate": run_translation, "doctor": run_doctor}


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = COMMANDS.get(arguments[0] if arguments else "")
    try:
        summary = command(arguments[1:]) if command else run_training(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, for one
        print(f"error: {error}; nothing is lost that a checkpoint holds", file=sys.stderr)
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
    add_common(result)
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


def run_training(arguments: list[str]) -> dict[str, Any] | None:
    """The summary of the finished run, or None if it was paused."""
    options = parser().parse_args(arguments)
    options.out = options.out or Path("runs") / (options.preset or DEFAULT_PRESET)
    with join(options.timeout) as world:
        if options.resume and (begun(options.out) or not is_start(options)):
            return go_on(options, world)
        check_free(options.out)
        return start(options, world)


def is_start(options: argparse.Namespace) -> bool:
    """Whether more is given than where the run is."""
    return any((options.text, options.set, options.preset, options.init, options.tokenizer))


def go_on(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    run = Run.load(options.out)
    if is_start(options):
        check_same(run, *resolve(options)[:2])
        if options.text and (source := name_of(find_files(options.text))) != run.data["source"]:
            raise UserError(f"--resume: text={source}, but the run has text={run.data['source']}")
    return train(run, open_task(run, world), resume=True, world=world)


def start(options: argparse.Namespace, world: World) -> dict[str, Any] | None:
    model, training, encoding, initial = resolve(options)

    def make_shards() -> tuple[Shards, str]:
        corpus, source = open_corpus(options.text, training.seed)
        tokenizer = open_tokenizer(encoding, corpus, options.full_vocabulary)
        folder = options.shards or options.out.parent / "shards"
        shards = prepare(corpus, folder, model.vocab_size, model.block_size, tokenizer)
        return shards, source

    shards, source = world.in_turns(make_shards)
    model = dataclasses.replace(model, vocab_size=shards.tokenizer.vocab_size)
    data = {
        "source": source,
        "chat": shards.is_chat,
        "shards": str(shards.path.resolve()),
        **{key: shards.manifest[key] for key in ("corpus_sha256", "n_documents", "n_bytes")},
    }
    run = Run(options.out, model, training, data)
    print(describe(model, training))
    return train(run, LanguageModelling(run, shards, world), initial, world=world)


def open_task(run: Run, world: World) -> LanguageModelling:
    if "shards" not in run.data:
        raise UserError(f"{run.path} is a translation: python -m training translate --resume")
    shards = world.in_turns(lambda: load_shards(Path(run.data["shards"])))
    return LanguageModelling(run, shards, world)


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
        model, training = read_settings(options.set, base.model, TrainConfig())
        return model, training, str(base.path / "tokenizer"), base.best_checkpoint()[0].model
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
    return lambda: read_documents(files), name_of(files)


def name_of(files: list[Path]) -> str:
    return ", ".join(sorted({file.name for file in files}))


if __name__ == "__main__":
    sys.exit(main())
