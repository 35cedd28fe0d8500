"""python -m training TEXT... --out runs/NAME: from text files to a trained model."""

import argparse
import dataclasses
import sys
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

from gptcore.checks import UserError, check_choice
from gptcore.config import PRESETS, ModelConfig
from gptcore.nn.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint
from gptcore.tokenizer import Tokenizer
from training.config import TrainConfig
from training.corpus import Corpus, find_files, read_documents
from training.dialogues import dialogues
from training.loop import train
from training.run import Run
from training.shards import load_shards, prepare

INTERRUPTED = 130  # the exit code by which a shell knows Ctrl-C
N_DIALOGUES = 100_000  # of the project's own corpus


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        summary = run_training(options)
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
        description="Train a small GPT on text files, or without any on made-up dialogues.",
        epilog=settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "text",
        nargs="*",
        type=Path,
        help='.txt, or .jsonl with "text" or chat "messages", or .gz of them; files or folders',
    )
    result.add_argument("--out", type=Path, required=True, help="the run directory to write")
    result.add_argument("--preset", default=None, help=f"{', '.join(PRESETS)} (default: small)")
    result.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting below"
    )
    result.add_argument("--resume", action="store_true", help="go on with the run in --out")
    result.add_argument("--init", type=Path, help="fine-tune: start from this run's weights")
    result.add_argument("--tokenizer", type=Path, help="use this folder's tokenizer")
    result.add_argument("--shards", type=Path, help="where token shards are kept (OUT/../shards)")
    return result


def settings_help() -> str:
    """The settings of --set with their defaults, from the dataclasses."""
    lines = ["settings of the model (defaults: those of the preset; here nano's):"]
    lines += [f"  {f.name}={f.default}" for f in dataclasses.fields(ModelConfig)]
    lines += ["settings of the training:"]
    lines += [f"  {f.name}={f.default}" for f in dataclasses.fields(TrainConfig)]
    return "\n".join(lines)


def run_training(options: argparse.Namespace) -> dict[str, Any] | None:
    """The summary of the finished run, or None if it was paused."""
    if options.resume:
        run = Run.load(options.out)
        if any((options.text, options.set, options.preset, options.init, options.tokenizer)):
            raise UserError(
                "--resume goes on with the run's own text and settings: give only --out"
            )
        return train(run, load_shards(Path(run.data["shards"])), resume=True)
    if options.out.is_file():
        raise UserError(f"{options.out} is a file: --out names a folder")
    if list_checkpoints(options.out / "checkpoints"):
        raise UserError(f"{options.out} holds a run already: add --resume, or choose another --out")
    model, training, tokenizer, initial = resolve(options)
    corpus, source = open_corpus(options.text, training.seed)
    folder = options.shards or options.out.parent / "shards"
    shards = prepare(corpus, folder, model.vocab_size, model.block_size, tokenizer)
    model = dataclasses.replace(model, vocab_size=shards.tokenizer.vocab_size)
    data = {
        "source": source,
        "chat": shards.is_chat,
        "shards": str(shards.path.resolve()),
        **{key: shards.manifest[key] for key in ("corpus_sha256", "n_documents", "n_bytes")},
    }
    run = Run(options.out, model, training, data)
    settings = model.to_dict() | training.to_dict()
    print("settings:", ", ".join(f"{key}={value}" for key, value in settings.items()))
    return train(run, shards, initial)


def resolve(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, Tokenizer | None, Any]:
    """Model and training settings; tokenizer and weights where they are given."""
    changes = parse_settings(options.set)
    model_keys = {f.name for f in dataclasses.fields(ModelConfig)}
    model_changes = {k: v for k, v in changes.items() if k in model_keys}
    training = TrainConfig(**{k: v for k, v in changes.items() if k not in model_keys})
    tokenizer = Tokenizer.load(options.tokenizer) if options.tokenizer else None
    if options.init:
        if options.preset or options.tokenizer:
            raise UserError(
                "--init takes shape and tokenizer from that run: drop --preset and so on"
            )
        base = Run.load(options.init)
        folder, _ = newest_checkpoint(base.checkpoints)
        model = dataclasses.replace(base.model, **model_changes)
        return model, training, base.tokenizer, load_checkpoint(folder)[0]
    preset = options.preset or "small"
    check_choice("preset", preset, PRESETS)
    model = dataclasses.replace(PRESETS[preset], **model_changes)
    return model, training, tokenizer, None


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE texts to values of the right types."""
    types = get_type_hints(ModelConfig) | get_type_hints(TrainConfig)
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: write it as KEY=VALUE")
        check_choice("setting", key, types)
        values[key] = parse_value(key, text, types[key])
    return values


def parse_value(key: str, text: str, wanted: type) -> Any:
    if wanted is bool:
        check_choice(key, text, ("true", "false"))
        return text == "true"
    try:
        return wanted(text)
    except ValueError:
        raise UserError(f"--set {key}={text}: it is not of type {wanted.__name__}") from None


def open_corpus(paths: list[Path], seed: int) -> tuple[Corpus, str]:
    """The documents of the given files, or the project's own dialogues; and a name for them."""
    if not paths:
        return lambda: islice(dialogues(seed), N_DIALOGUES), f"{N_DIALOGUES:,} made-up dialogues"
    files = find_files(paths)
    return lambda: read_documents(files), ", ".join(sorted({file.name for file in files}))


if __name__ == "__main__":
    sys.exit(main())
