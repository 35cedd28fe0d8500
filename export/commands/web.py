"""python -m export web models/NAME --out site: write a static page that chats in the browser."""

import argparse
from pathlib import Path

from export.ship.web import build_site
from gptcore.bundle import load_bundle

KEPT = "; --out is as it was before"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write the site to")


def run(options: argparse.Namespace) -> int:
    build_site(load_bundle(options.model), options.out)
    return 0
