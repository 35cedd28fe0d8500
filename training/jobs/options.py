"""From the options of a command to settings, a tokenizer and token shards.

>>> model, training, encoding = from_preset(options)                 # doctest: +SKIP
>>> text = read_text(options, seed=1)                                # doctest: +SKIP
>>> shards = tokenised(options, text, folder, model, encoding)       # doctest: +SKIP
"""

import argparse
import csv
import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path

from gptcore.checks import UserError, check_choice, nearest_beside
from gptcore.config import DECODERS, TRANSLATORS, ModelConfig, Seq2SeqConfig
from gptcore.families import family
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Corpus, check_learnable
from training.data.shards.folder import Shards, check_length, is_finished, prepare
from training.data.sources import (
    DIALOGUES,
    OWN,
    open_corpus,
    open_tokenizer,
    shards_folder,
)
from training.data.survey import Survey, survey
from training.formats.found import Asked
from training.formats.places import find_files, left_out
from training.look.look import Look, look
from training.plan.scaling import DEPTHS
from training.run.base import shape_of
from training.run.config import ADAPTERS, ENCODINGS, FINE_TUNING, TRAININGS, TrainConfig
from training.run.settings import check_row, goes_on, names_of, read_settings

MIN_MINUTES, MAX_MINUTES = 0.05, 60_000.0
MIN_BYTES = 1000  # smallest text to plan for
TOO_LONG_USUAL = (
    "note: the chats' system message is too long to be kept in a context of {} tokens: give the "
    "model a shorter one as the page's System prompt, or with --system"
)


def from_preset(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Return model and training settings and the tokenizer's name from --preset and --set.

    Raises UserError for an unknown preset or a bad setting.
    """
    preset = options.preset
    if preset in TRANSLATORS:
        raise UserError(f"preset {preset} is for translators: use python -m training translate")
    check_choice("preset", preset, DECODERS)
    settings = TRAININGS.get(preset, TrainConfig())
    model, training = read_settings(options.set, DECODERS[preset], settings)
    return model, training, options.tokenizer or ENCODINGS.get(preset, OWN)


def settings_of(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Return model and training settings and the tokenizer's name. Raises UserError."""
    found = from_init(options) if options.init else from_preset(options)
    check_row(*found[:2])
    return found


def from_init(options: argparse.Namespace) -> tuple[ModelConfig, TrainConfig, str]:
    """Return model and training settings and the tokenizer's folder from --init and --lora.

    Raises UserError if it names no decoder, for a bad --lora, or with --preset or --tokenizer.
    """
    if options.preset or options.tokenizer:
        raise UserError("--init sets shape and tokenizer: drop --preset and --tokenizer")
    shape, tokenizer = shape_of(options.init)
    training = FINE_TUNING
    if options.lora is not None:
        if not (1 <= options.lora <= shape.n_embd):
            raise UserError(f"--lora {options.lora} is out of range: choose 1 to {shape.n_embd}")
        training = dataclasses.replace(ADAPTERS, lora=options.lora)
    model, training = read_settings(options.set, shape, training)
    if options.lora is not None and not family(model):
        raise UserError("--lora is for models of Llama's shape, and this one has another")
    return model, training, str(tokenizer)


def check_dial(options: argparse.Namespace) -> None:
    """Raise UserError for what needs --init, and for a bad --minutes or --depth."""
    has_base = options.init or goes_on(options)  # a run that goes on knows its own
    if options.lora is not None and not has_base:
        raise UserError("--lora adapts a trained model: name it with --init")
    minutes, depth, chosen = options.minutes, options.depth, names_of(options.set)
    if "keep" in chosen and not has_base:
        raise UserError("keep is a share of the weights of a trained model: name it with --init")
    if minutes is None and depth is None:
        return
    if minutes is not None and depth is not None:
        raise UserError("--minutes and --depth both set the size: give only one of them")
    if minutes is not None and not (MIN_MINUTES <= minutes <= MAX_MINUTES):
        raise UserError(
            f"--minutes {minutes:g} is out of range: choose {MIN_MINUTES:g} to {MAX_MINUTES:g}"
        )
    if depth is not None and depth not in DEPTHS:
        raise UserError(f"--depth {depth} is out of range: choose {DEPTHS[0]} to {DEPTHS[-1]}")
    if "row_tokens" in chosen and not options.init:
        raise UserError(
            "--minutes and --depth plan with rows as long as the context: drop --set row_tokens, "
            "or set block_size"
        )
    if minutes is not None and "steps" in chosen:
        raise UserError("--minutes chooses the steps: drop --set steps, or --minutes")
    if options.preset:
        raise UserError("--minutes and --depth choose the shape: drop them, or --preset")
    if options.init and depth is not None:
        raise UserError("--init has a shape already: drop --depth")


def translator_preset(options: argparse.Namespace) -> tuple[Seq2SeqConfig, TrainConfig]:
    """Return a translator's model and training settings. Raises UserError for a bad option."""
    check_choice("preset of a translator", options.preset, TRANSLATORS)
    if "keep" in names_of(options.set):
        raise UserError("keep is for language models, which --init begins with: drop --set keep")
    preset = TRANSLATORS[options.preset], TRAININGS[options.preset]
    return read_settings(options.set, *preset)


@dataclass(frozen=True)
class Text:
    """The texts of a training, after a first pass over them."""

    corpus: Corpus
    source: str  # a name for them
    survey: Survey
    seconds: float  # that the pass took
    datasets: dict[str, float] = field(default_factory=dict)  # passes over texts known by name


def check_shards(options: argparse.Namespace) -> None:
    """Raise UserError if, without texts, --shards names a place without finished shards."""
    if not options.shards or options.text or is_finished(options.shards):
        return
    hint = nearest_beside(Path(options.shards))
    raise UserError(
        f"--shards {options.shards} holds no finished token shards: name the folder that `python "
        f"-m training shards` printed, or give texts, whose shards are kept there"
        f"{hint and f'; {hint}'}"
    )


def read_text(
    options: argparse.Namespace,
    seed: int,
    tells: bool = True,
    tokenizer: Tokenizer | None = None,
) -> Text:
    """Read the texts once, and say what is in them. Raises UserError if nothing can be learned.

    tokenizer: the one by whose tokens they are counted, if it is known already.
    """
    started = time.perf_counter()
    if not options.text:
        corpus, source = open_corpus([], seed)
        if tells:
            print(f"no text is named, so {source} are read")
        return Text(corpus, source, survey(corpus), time.perf_counter() - started, {DIALOGUES: 1.0})
    asked = asked_of(options)
    files = find_files(options.text)  # once: at an address, there may be others later
    found = look(files, asked)
    if tells:
        tell_of(found, options.text, tokenizer)
    seconds = time.perf_counter() - started
    return Text(*open_corpus(files, seed, asked), found.survey, seconds)


def tell_of(
    found: Look,
    texts: list[str],
    tokenizer: Tokenizer | None = None,
    advises: bool = True,
) -> None:
    """Print what is in the files. Raises UserError, which says why, if nothing can be learned."""
    found.check()
    print(found.table())
    for line in left_out(texts):
        print(line)
    print(found.summary(tokenizer, advises), flush=True)


def check_text(options: argparse.Namespace, text: Text) -> None:
    """Raise UserError if a text is too short to train on, or for the plan that is asked for."""
    check_length(text.survey)
    n_bytes, dials = text.survey.n_bytes, (options.minutes, options.depth)
    if n_bytes < MIN_BYTES and not options.init and any(dial is not None for dial in dials):
        raise UserError(
            f"the text is too short to plan for: {n_bytes:,} bytes; give at least "
            f"{MIN_BYTES:,}, or name a shape: --preset nano"
        )


def asked_of(options: argparse.Namespace) -> Asked:
    """Return what --me and --columns say about the files. Raises UserError."""
    try:
        named = next(csv.reader([options.columns or ""], skipinitialspace=True), [])
    except csv.Error:
        raise UserError(
            f"--columns {options.columns!r}: put a name with a line break in double quotes"
        ) from None
    columns = tuple(name.strip() for name in named if name.strip())
    if len(columns) > 2:
        raise UserError(f"--columns {options.columns}: name question and answer, or one for texts")
    return Asked(tuple(options.me or ()), columns)


def is_too_long(message: str, context: int, tokenizer: Tokenizer | None) -> bool:
    """Return whether a system message takes more than a third of the context."""
    # A tokenizer that is trained on the text makes of it a token for three bytes or more.
    n_tokens = len(tokenizer.encode(message)) if tokenizer else len(message.encode()) / 3
    return 3 * n_tokens > context


def tokenised(
    options: argparse.Namespace, text: Text, folder: Path, model: ModelConfig, encoding: str
) -> Shards:
    """Return the shards of texts, kept in `folder` or in the folder that --shards names."""
    folder = shards_folder(options.shards, folder)
    tokenizer = open_tokenizer(encoding, text.corpus, options.full_vocabulary)
    if tokenizer and text.survey.n_chats:
        check_learnable(tokenizer, encoding)
    if (
        tokenizer and tokenizer.is_ours and encoding == options.tokenizer
    ):  # the other model's system message is its own
        tokenizer = Tokenizer(tokenizer.ranks, tokenizer.pattern, tokenizer.kept)
    found = text.survey
    if is_too_long(found.usual_system, model.block_size, tokenizer):
        print(TOO_LONG_USUAL.format(model.block_size))
        found = dataclasses.replace(found, usual_system="")
    return prepare(text.corpus, folder, model.vocab_size, tokenizer, found=found)
