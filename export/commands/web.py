"""python -m export web models/NAME --out site: write a static page that chats in the browser.

python -m export web models/NAME --single-file --out chat.html    the same in one file
"""

import argparse
from pathlib import Path

from gptcore.bundle import load_bundle

KEPT = "; --out is unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write the site to")
    parser.add_argument(
        "--single-file",
        action="store_true",
        help="write one file, which opens by a double click; for graphs up to 30 MB, which "
        "--quantize int8 makes a quarter as large",
    )


def run(options: argparse.Namespace) -> int:
    bundle = load_bundle(options.model)
    from export.ship.single import build_single_file
    from export.ship.web import build_site

    (build_single_file if options.single_file else build_site)(bundle, options.out)
    return 0
