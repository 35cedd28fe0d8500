"""python -m export RUN --out models/NAME, and what can be done with a model folder."""

import argparse
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from export.folder.card import Hub, read_license
from export.folder.variants import read_names, split_names
from export.folder.write import add_inspect, export_run
from export.formats.gguf import command as gguf_command
from export.formats.quantize import FORMATS
from export.pretrained.hugging_face import export_pretrained
from export.runtimes.compare import verify_runtimes
from export.runtimes.environments import PEERS
from export.ship.push import command as push_command
from export.ship.small import command as ship_command
from export.ship.space import command as space_command
from export.ship.web import command as web_command
from export.verify.decoder import print_report, verify
from export.verify.score import score_folder
from export.verify.translation import verify_translation
from gptcore.bundle import TranslationBundle, load_any_bundle, load_translation_bundle
from gptcore.checks import UserError, check_choice
from training.data.sentence_pairs import read_pairs
from training.run.directory import Run

DESCRIPTION = """\
Turn a training run into a verified model folder:
  python -m export runs/NAME --out models/NAME
Turn a Hugging Face model of Llama's shape, such as SmolLM2-135M-Instruct, into one:
  python -m export --from-hf DIR --out models/NAME
Verify a model folder again; and run it in other runtimes, which it installs:
  python -m export verify models/NAME
  python -m export verify models/NAME --runtimes
Add the graph that the page's Inspect tab needs:
  python -m export inspect models/NAME
Translate a file of pairs with a translation model, and score the result:
  python -m export score models/NAME PAIRS.tsv --beams 4
Write a model for llama.cpp, in one file:
  python -m export gguf models/NAME
Write a small copy of a model folder, for a plain git push:
  python -m export ship models/NAME --out models/small
Write a Hugging Face Space, the page with this model:
  python -m export space models/NAME --out space
Upload a model folder, a Space or a static page to the Hugging Face Hub:
  python -m export push FOLDER USER/NAME
Write a static page that chats with the model in the browser, without a server:
  python -m export web models/NAME --out site
"""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = COMMANDS.get(arguments[0]) if arguments else None
    try:
        if (
            arguments
            and get_close_matches(arguments[0], COMMANDS)
            and not Path(arguments[0]).exists()
        ):
            check_choice("command", arguments[0], COMMANDS)
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
    parser.add_argument("run", type=Path, nargs="?", help="the run directory that training wrote")
    parser.add_argument(
        "--from-hf", type=Path, metavar="DIR", help="instead, a folder with a Hugging Face Llama"
    )
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    parser.add_argument("--name", help="the model's name (default: that of the folder)")
    parser.add_argument(
        "--license", help="named in the model card (default: mit, or its own with --from-hf)"
    )
    parser.add_argument("--language", default="", help="named in the model card, as `en,zh`")
    parser.add_argument("--datasets", default="", help="named in the model card, as on the Hub")
    parser.add_argument(
        "--context", type=int, help="keep only so much of its context (with --from-hf)"
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="text to measure on (with --from-hf; default: the project's own dialogues)",
    )
    parser.add_argument(
        "--quantize", default="", metavar="FORMATS", help=f"smaller files too: {','.join(FORMATS)}"
    )
    parser.add_argument(
        "--force", action="store_true", help="keep smaller files that are over 2 %% worse"
    )
    options = parser.parse_args(arguments)
    name, formats = options.name or options.out.name, read_names(options.quantize)
    if (options.run is None) == (options.from_hf is None):
        raise UserError("name either a run directory or --from-hf DIR")
    hub = Hub(
        options.license or (read_license(options.from_hf) if options.from_hf else "mit"),
        split_names(options.language),
        split_names(options.datasets),
    )
    if options.from_hf:
        export_pretrained(
            options.from_hf, options.out, name, hub, formats, options.force,
            options.text, options.context,
        )  # fmt: skip
        return 0
    if options.context or options.text:
        raise UserError("--context and --text go with --from-hf: a run has its own")
    export_run(Run.load(options.run), options.out, name, hub, formats, options.force)
    return 0


def verify_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m export verify")
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument(
        "--runtimes",
        nargs="?",
        const=",".join(PEERS),
        metavar="NAMES",
        help=f"instead run it in other runtimes, which are installed: some of {', '.join(PEERS)} "
        "(default: all)",
    )
    options = parser.parse_args(arguments)
    if options.runtimes is not None:
        return verify_runtimes(options.model, options.runtimes.split(","))
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
    "gguf": gguf_command,
    "ship": ship_command,
    "space": space_command,
    "push": push_command,
    "web": web_command,
}
