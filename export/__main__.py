"""python -m export RUN --out models/NAME, and what can be done with a model folder."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from export.folder import add_inspect, export_run
from export.score import score_folder
from export.verify import print_report, verify
from export.verify_translation import verify_translation
from gptcore.bundle import TranslationBundle, load_any_bundle, load_translation_bundle
from gptcore.checks import UserError
from training.pairs import read_pairs
from training.run import Run

DESCRIPTION = """\
Turn a training run into a verified model folder:
  python -m export runs/NAME --out models/NAME
Verify a model folder again:
  python -m export verify models/NAME
Add the graph that the page's Inspect tab needs:
  python -m export inspect models/NAME
Translate a file of pairs with a translation model, and score the result:
  python -m export score models/NAME PAIRS.tsv --beams 4
"""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = COMMANDS.get(arguments[0]) if arguments else None
    try:
        return command(arguments[1:]) if command else export_command(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def export_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m export",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="the run directory that training wrote")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    parser.add_argument("--name", help="the model's name (default: that of the folder)")
    parser.add_argument("--license", default="mit", help="named in the model card (default: mit)")
    options = parser.parse_args(arguments)
    name = options.name or options.out.name
    export_run(Run.load(options.run), options.out, name, options.license)
    return 0


def verify_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m export verify")
    parser.add_argument("model", type=Path, help="the model folder")
    options = parser.parse_args(arguments)
    bundle = load_any_bundle(options.model)
    is_translation = isinstance(bundle, TranslationBundle)
    checks = verify_translation(bundle) if is_translation else verify(bundle)
    print_report(checks)
    return 0 if all(check.passed for check in checks) else 1


def inspect_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m export inspect")
    parser.add_argument("model", type=Path, help="the model folder to add onnx/inspect.onnx to")
    add_inspect(parser.parse_args(arguments).model)
    return 0


def score_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m export score")
    parser.add_argument("model", type=Path, help="the folder of a translation model")
    parser.add_argument("pairs", type=Path, help="a .tsv or .tsv.gz: source, tab, target")
    parser.add_argument("--reverse", action="store_true", help="source is the second column")
    parser.add_argument("--beams", type=int, default=1, help="1 (the default) is greedy")
    parser.add_argument("--samples", type=int, default=10, help="translations to print")
    parser.add_argument("--untrained", action="store_true", help="an untrained model, too")
    options = parser.parse_args(arguments)
    bundle = load_translation_bundle(options.model)
    pairs = read_pairs(options.pairs, options.reverse)
    n_different = score_folder(bundle, pairs, options.beams, options.samples, options.untrained)
    return 1 if n_different else 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "verify": verify_command,
    "inspect": inspect_command,
    "score": score_command,
}

if __name__ == "__main__":
    sys.exit(main())
