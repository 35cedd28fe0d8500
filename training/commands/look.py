"""python -m training look FILES: what is in the files, before anything is trained.

python -m training look FILES --json look.json    also writes a few facts for programs
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError
from gptcore.system.files import write_json
from training.commands.train import add_files
from training.data.shards.folder import check_length
from training.formats.places import find_files
from training.jobs.options import asked_of, tell_of
from training.look.look import look


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser, nargs="+")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write, for programs, who writes in chats, which chats ask for --me, why files are "
        "not used, and whether the model that ships is a better start than a new one",
    )


def run(options: argparse.Namespace) -> int:
    found = look(find_files(options.text), asked_of(options))
    if options.json:
        facts = ("people", "asking", "unused", "suits_init")
        write_json(options.json, {name: getattr(found, name) for name in facts})
    # A program chooses the start by its facts, so it is not advised besides.
    tell_of(found, options.text, advises=not options.json)
    try:
        check_length(found.survey)
    except UserError as error:  # which would end a training
        print(f"note: {error}")
    return 0
