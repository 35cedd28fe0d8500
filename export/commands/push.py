"""python -m export push FOLDER USER/NAME: upload a model folder, a Space or a static page.

Graphs, weights, code and models/ of an earlier push are deleted if the folder lacks them; other
files stay.

The token comes from HF_TOKEN or `hf auth login`; otherwise the command asks for it. There is no
option for it, because other users can see the options of a running process.
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError

KEPT = "; run the same command again: what has arrived is not sent again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a model folder, a Space or a static page")
    parser.add_argument("repo", help="the repository to upload to: USER/NAME")
    parser.add_argument(
        "--private", action="store_true", help="create the repository as private (default: public)"
    )


def run(options: argparse.Namespace) -> int:
    if not options.folder.is_dir():
        raise UserError(f"no folder at {options.folder}: name one that `python -m export` wrote")
    from export.ship.push import push  # this module imports huggingface_hub

    url = push(options.folder, options.repo, options.private)
    print(f"uploaded {options.folder} to {url}")
    return 0
