"""python -m training shards TEXT... --shards DIR: tokenise texts into shards, without training.

python -m training shards texts/ --shards made                     all at once
python -m training shards texts/ --shards made --tokenizer T --part 3/64    the third of 64 parts
python -m training shards --join --shards made                     one manifest for all parts
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError
from gptcore.system.wording import word
from gptcore.text.tokenizer import Tokenizer
from training.commands.train import add_text, preset_of
from training.data.encodings import NAMES
from training.data.shards.parts import Part, join_parts, write_part
from training.data.sources import OWN, shards_folder
from training.formats.places import find_files
from training.jobs.options import asked_of, from_preset, read_text, tokenised
from training.run.settings import add_set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser, shards="folder to write the shards, or the parts, in (default: runs/shards)")
    add_set(parser)
    parser.add_argument("--part", metavar="K/N", help="make only the part K of N, on any machine")
    parser.add_argument("--join", action="store_true", help="join the parts that were made")


def run(options: argparse.Namespace) -> int:
    if options.join or options.part:
        if not options.shards:
            raise UserError("name the folder of the parts: --shards DIR")
        folder = shards_folder(options.shards, Path())
        print(joined(folder) if options.join else parted(options, folder))
        return 0
    if options.shards and not options.text:
        raise UserError(f"--shards {options.shards}: name the texts, too, that are to be tokenised")
    if options.tokenizer and options.tokenizer not in (OWN, *NAMES):
        Tokenizer.load(options.tokenizer)  # a mistake is said before the texts are read
    stored, is_given = sum(file.size for file in find_files(options.text)), bool(options.preset)
    options.preset = options.preset or preset_of(stored)
    text = read_text(options, from_preset(options)[1].seed)
    if not is_given:
        options.preset = preset_of(text.survey.n_bytes)
    model, _, encoding = from_preset(options)
    shards = tokenised(options, text, Path("runs") / "shards", model, encoding)
    print(f"wrote {shards.path}; to train on it here or elsewhere: --shards FOLDER-OR-URL")
    return 0


def parted(options: argparse.Namespace, folder: Path) -> str:
    """Make one part. Raises UserError without texts or a finished tokenizer."""
    if not options.text:
        raise UserError("--part needs the texts, the same for every part")
    if not options.tokenizer or not Path(options.tokenizer).is_dir():
        raise UserError(
            "--part needs --tokenizer FOLDER, the same for every part, such as the folder "
            "tokenizer/ of the shards of a sample: python -m training shards SAMPLE --shards DIR"
        )
    tokenizer = Tokenizer.load(options.tokenizer)
    part = Part.parse(options.part)
    written = write_part(find_files(options.text), asked_of(options), tokenizer, folder, part)
    then = f"python -m training shards --join --shards {word(folder)}"
    return f"wrote {written}; when all are made: {then}"


def joined(folder: Path) -> str:
    n_tokens = join_parts(folder).manifest["splits"]["train"]["n_tokens"]
    return f"{folder} has {n_tokens:,} tokens to train on: --shards {folder}"
