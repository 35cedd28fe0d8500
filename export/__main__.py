"""python -m export RUN --out models/NAME, and python -m export verify models/NAME."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from export.folder import export_run
from export.verify import print_report, verify
from gptcore.bundle import load_bundle
from gptcore.checks import UserError
from training.run import Run

DESCRIPTION = """\
Turn a training run into a verified model folder:
  python -m export runs/NAME --out models/NAME
Verify a model folder again:
  python -m export verify models/NAME
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
    checks = verify(load_bundle(options.model))
    print_report(checks)
    return 0 if all(check.passed for check in checks) else 1


COMMANDS: dict[str, Callable[[list[str]], int]] = {"verify": verify_command}

if __name__ == "__main__":
    sys.exit(main())
