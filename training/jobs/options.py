"""What the options of a command stand for: settings, a tokenizer, and texts, which become shards.

>>> model, training, encoding = from_preset(options)                 # doctest: +SKIP
>>> shards, source = tokenised(options, folder, model, training, encoding)   # doctest: +SKIP
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError, check_choice
from gptcore.config import DECODERS, TRANSLATORS, ModelConfig, Seq2SeqConfig
from training.data.shards import CACHE, Shards, is_finished, prepare
from training.data.sources import (
    OWN,
    finished_shards,
    open_corpus,
    open_tokenizer,
    shards_folder,
)
from training.run.config import ENCODINGS, TRAININGS, TrainConfig
from training.run.directory import Run
from training.run.settings import read_settings

DEFAULT_PRESET, DEFAULT_TRANSLATOR = "small", "translator"


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
    if base.data.shards is None:
        raise UserError(f"--init {options.init} is a translation: name a run on texts")
    model, training = read_settings(options.set, base.model, TrainConfig())
    return model, training, str(base.path / "tokenizer")


def translator_preset(options: argparse.Namespace) -> tuple[Seq2SeqConfig, TrainConfig]:
    """Model and training settings of a translator."""
    preset = options.preset or DEFAULT_TRANSLATOR
    check_choice("preset of a translator", preset, TRANSLATORS)
    return read_settings(options.set, TRANSLATORS[preset], TRAININGS[preset])


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
