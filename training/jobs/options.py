"""From the options of a command to settings, a tokenizer and token shards.

>>> model, training, encoding = from_preset(options)                 # doctest: +SKIP
>>> shards, source = tokenised(options, folder, model, training, encoding)   # doctest: +SKIP
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError, check_choice
from gptcore.config import DECODERS, TRANSLATORS, ModelConfig, Seq2SeqConfig
from training.data.look import look
from training.data.shards import CACHE, Shards, is_finished, prepare
from training.data.sources import (
    OWN,
    finished_shards,
    open_corpus,
    open_tokenizer,
    shards_folder,
)
from training.formats.found import Asked
from training.formats.places import find_files
from training.run.config import ENCODINGS, TRAININGS, TrainConfig
from training.run.directory import Run
from training.run.settings import read_settings

DEFAULT_PRESET, DEFAULT_TRANSLATOR = "small", "translator"


def from_preset(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Return model and training settings and the tokenizer's name from --preset and --set.

    Raises UserError for an unknown preset or a bad setting.
    """
    preset = options.preset or DEFAULT_PRESET
    if preset in TRANSLATORS:
        raise UserError(f"preset {preset} is for translators: use python -m training translate")
    check_choice("preset", preset, DECODERS)
    settings = TRAININGS.get(preset, TrainConfig())
    model, training = read_settings(options.set, DECODERS[preset], settings)
    return model, training, options.tokenizer or ENCODINGS.get(preset, OWN)


def from_run(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Return model and training settings and the tokenizer's folder from the run of --init.

    Raises UserError if the run is a translator, or with --preset or --tokenizer.
    """
    if options.preset or options.tokenizer:
        raise UserError("--init sets shape and tokenizer: drop --preset and --tokenizer")
    base = Run.load(options.init)
    if base.data.shards is None:
        raise UserError(f"--init {options.init} is a translator: name a language model's run")
    model, training = read_settings(options.set, base.model, TrainConfig())
    return model, training, str(base.path / "tokenizer")


def translator_preset(options: argparse.Namespace) -> tuple[Seq2SeqConfig, TrainConfig]:
    """Return a translator's model and training settings. Raises UserError for a bad option."""
    preset = options.preset or DEFAULT_TRANSLATOR
    check_choice("preset of a translator", preset, TRANSLATORS)
    return read_settings(options.set, TRANSLATORS[preset], TRAININGS[preset])


def make_shards(
    options: argparse.Namespace, model: ModelConfig, training: TrainConfig, encoding: str
) -> tuple[Shards, str]:
    """Return finished shards, or the shards of the given texts, and a name for the texts."""
    if options.shards and is_finished(options.shards) and not options.text:
        return finished_shards(options.shards, options.out / CACHE, encoding), options.shards
    return tokenised(options, options.out.parent / "shards", model, training, encoding)


def asked_of(options: argparse.Namespace) -> Asked:
    """Return what --me and --columns say about the files. Raises UserError."""
    columns = tuple(name.strip() for name in (options.columns or "").split(",") if name.strip())
    if len(columns) > 2:
        raise UserError(f"--columns {options.columns}: name question and answer, or one for texts")
    return Asked(options.me, columns)


def show_text(options: argparse.Namespace) -> None:
    """Print what is in the files of a training. Raises UserError if nothing can be learned."""
    if options.text:
        print(look(find_files(options.text), asked_of(options)).table())


def tokenised(
    options: argparse.Namespace,
    folder: Path,
    model: ModelConfig,
    training: TrainConfig,
    encoding: str,
) -> tuple[Shards, str]:
    """Return the shards of the given texts, and a name for the texts.

    The shards are kept in `folder`, or in the folder that --shards names.
    """
    folder = shards_folder(options.shards, folder)
    corpus, source = open_corpus(options.text, training.seed, asked_of(options))
    tokenizer = open_tokenizer(encoding, corpus, options.full_vocabulary)
    return prepare(corpus, folder, model.vocab_size, model.block_size, tokenizer), source
