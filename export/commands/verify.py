"""python -m export verify models/NAME: check that the exported graph equals the model.

python -m export verify models/NAME                 compares it with PyTorch
python -m export verify models/NAME --runtimes      runs it in other runtimes, installing them
"""

import argparse
from pathlib import Path

from export.commands.export import split_names
from export.formats.model_folder import load_any_bundle
from export.runtimes.environments import PEERS
from gptcore.bundle import TranslationBundle, read_facts
from training.machine.progress import waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument(
        "--runtimes",
        nargs="?",
        const=",".join(PEERS),
        metavar="NAMES",
        help=f"run it in other runtimes instead and install them: some of {', '.join(PEERS)} "
        "(default: all)",
    )


def run(options: argparse.Namespace) -> int:
    read_facts(options.model)
    if options.runtimes is not None:
        with waiting("starting PyTorch"):
            from export.runtimes.compare import verify_runtimes

        return verify_runtimes(options.model, split_names(options.runtimes) or [""])
    with waiting("starting PyTorch"):
        from export.verify.decoder import verify
        from export.verify.report import any_failed, print_report
        from export.verify.translation import verify_translation

    bundle = load_any_bundle(options.model)
    checks = verify_translation(bundle) if isinstance(bundle, TranslationBundle) else verify(bundle)
    print_report(checks)
    return 1 if any_failed(checks) else 0
