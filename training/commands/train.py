"""python -m training TEXT... --out runs/NAME: train a model on text files.

python -m training TEXT... --minutes 30           plan and run a training of 30 minutes
python -m training TEXT... --minutes 30 --plan    say what it would be, and train nothing
"""

import argparse
import os
from pathlib import Path

from gptcore.checks import UserError
from gptcore.config import DECODERS, ModelConfig
from gptcore.system.command_line import INTERRUPTED
from gptcore.system.files import read_sealed
from gptcore.system.wording import word
from gptcore.text.tokenizer import Tokenizer
from training.data.encodings import NAMES
from training.data.shards.folder import MANIFEST, is_finished, is_url
from training.data.sources import OWN, folder_tokenizer
from training.formats.places import find_files
from training.jobs.options import (
    Text,
    asked_of,
    check_dial,
    check_shards,
    check_text,
    read_text,
    settings_of,
)
from training.machine.progress import waiting
from training.run.base import shape_of
from training.run.config import ENCODINGS, TrainConfig
from training.run.directory import Run, begun, runs_in
from training.run.lock import check_free
from training.run.settings import UNPLANNED, add_common, goes_on, read_settings, settings_help

# A shorter text gets a smaller model: one with more weights than bytes learns it by heart.
DEFAULT_PRESET, SMALLER_PRESET = "small", "nano"
SMALLER_PRESET_BYTES = 5_000_000
SHARDS = (
    "folder to keep the tokenised text in (default: shards/ beside the run); or, without text, a "
    "folder or fsspec URL of such finished shards"
)
OUT = Path("runs/mine")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = settings_help(DECODERS["nano"], TrainConfig(), "nano", ["lora"])
    add_text(parser)
    parser.add_argument(
        "--out", type=Path, default=OUT, help="run directory to write (%(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, help="plan a training that takes this long, or less"
    )
    parser.add_argument(
        "--depth", type=int, help="plan a training of a model with this many layers, 1 to 24"
    )
    parser.add_argument(
        "--plan", action="store_true", help="print size, time and expected loss, and train nothing"
    )
    add_common(parser)
    parser.add_argument(
        "--init", type=Path, metavar="DIR", help="fine-tune this model folder, or this run"
    )
    parser.add_argument(
        "--lora",
        type=int,
        metavar="RANK",
        help="with --init: train nothing but small adapters of this rank (LoRA), such as 16",
    )


def add_text(parser: argparse.ArgumentParser, shards: str = SHARDS) -> None:
    """Add the options that name the text and its tokenizer. `shards`: the help of --shards."""
    add_files(parser, nargs="*")
    parser.add_argument(
        "--preset",
        help=f"shape and settings by name: one of {', '.join(DECODERS)} (default: "
        f"{DEFAULT_PRESET}, or {SMALLER_PRESET} for texts of less than "
        f"{SMALLER_PRESET_BYTES // 10**6} MB)",
    )
    parser.add_argument(
        "--tokenizer",
        help=f"`own` to train one on the text (the default), a folder with a tokenizer, or a "
        f"published one: {' or '.join(NAMES)} (the default of {', '.join(ENCODINGS)})",
    )
    parser.add_argument(
        "--full-vocabulary",
        action="store_true",
        help="keep all tokens of a published tokenizer, not only those that the text uses",
    )
    parser.add_argument("--shards", help=shards)


def add_files(parser: argparse.ArgumentParser, nargs: str) -> None:
    """Add the files, and what the user can say about them."""
    parser.add_argument(
        "text",
        nargs=nargs,
        help="files, folders, patterns or addresses: texts, Markdown, JSON, tables, web pages, "
        "books and chats, also packed; see docs/training.md"
        + (" (default: generated dialogues)" if nargs == "*" else ""),
    )
    add_asked(parser)


def add_asked(parser: argparse.ArgumentParser) -> None:
    """Add what only the user can say about files."""
    parser.add_argument(
        "--me",
        metavar="NAME",
        action="append",
        help="for exported chats: the person whose words are learned; once for each of your names",
    )
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help="for a table: the columns to read, QUESTION,ANSWER or one of texts",
    )


def run(options: argparse.Namespace) -> int:
    stored = stored_bytes(options)
    is_new = not goes_on(options)
    is_guessed = is_new and is_shape_open(options)
    if is_guessed:
        options.preset = preset_of(stored)
    check(options)
    looked = look_at(options) if options.text and is_new else None
    if looked and is_guessed:  # of a PDF, most of what is stored may be no text
        options.preset = preset_of(looked.survey.n_bytes)
    with waiting("starting PyTorch"):
        from training.jobs.language import train_language

    return INTERRUPTED if train_language(options, looked) is None else 0


def kept(options: argparse.Namespace) -> str:
    """Return what there is to go on from when the command is stopped."""
    if begun(options.out):
        return f"; the checkpoints in {options.out} are kept: add --resume to go on from the last"
    return "; no checkpoint was saved yet: start again"


def look_at(options: argparse.Namespace) -> Text:
    """Read the files once, and say what is in them.

    This happens before torch is imported, which takes seconds: a mistake in a file is reported at
    once, by a UserError.
    """
    own = Tokenizer.load(shape_of(options.init)[1]) if options.init else None
    # Of the processes that torchrun starts, only the first prints.
    is_first = "TORCHELASTIC_RUN_ID" not in os.environ or os.environ["RANK"] == "0"
    text = read_text(options, seed=0, tells=is_first, tokenizer=own)  # the seed is for dialogues
    check_text(options, text)
    return text


def is_shape_open(options: argparse.Namespace) -> bool:
    """Return whether neither a preset nor --init nor a plan determines the model's shape."""
    dials = (options.init, options.minutes, options.depth)
    return not options.preset and all(dial is None for dial in dials)


def stored_bytes(options: argparse.Namespace) -> int:
    """Return the bytes of the files, or of the text of finished shards on this machine."""
    place = options.shards or ""
    if options.text or not place or is_url(place) or not is_finished(place):
        return sum(file.size for file in find_files(options.text))
    return int(read_sealed(Path(place) / MANIFEST).get("n_bytes", 0))


def preset_of(n_bytes: int) -> str:
    """Return the preset for a text; a text too short for the default preset gets a smaller one.

    The project's own dialogues have no bytes before they are made, and get the default.
    """
    return SMALLER_PRESET if 0 < n_bytes < SMALLER_PRESET_BYTES else DEFAULT_PRESET


def check(options: argparse.Namespace) -> None:
    """Raise UserError for mistakes that can be found before torch is imported."""
    if is_begun := goes_on(options):
        if options.plan:
            raise UserError("--plan is of a new training: drop --resume")
        if options.out == OUT and not OUT.exists():
            named = " or ".join(f"--out {word(p)}" for p in runs_in(OUT.parent)) or "--out RUN"
            raise UserError(f"no training run at {OUT}, the default of --out: name one, {named}")
        Run.load(options.out)
    else:
        if not options.plan:
            check_free(options.out)
        check_shards(options)
    asked_of(options)
    if options.tokenizer and options.tokenizer not in (OWN, *NAMES):
        folder_tokenizer(options.tokenizer)
    check_dial(options)
    if is_begun:
        return  # its settings are compared with the run's
    if options.init or (options.minutes is None and options.depth is None):
        settings_of(options)
    else:  # the plan chooses the others
        read_settings(options.set, ModelConfig(), UNPLANNED)
