"""python -m export RUN --out models/NAME: write a verified model folder.

python -m export runs/NAME --out models/NAME            from a training run
python -m export --from-hf DIR --out models/NAME        from a Hugging Face model of Llama's
                                                        shape, such as SmolLM2-135M-Instruct
python -m export --from-gguf FILE --out models/NAME     from the same as llama.cpp's file
"""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from export.folder.replace import check_imported, check_model_folder
from gptcore.bundle import VARIANTS, read_facts
from gptcore.checks import UserError, check_choice
from gptcore.config import Seq2SeqConfig
from gptcore.system.files import work_folder
from gptcore.system.wording import word
from training.formats.places import find_files
from training.machine.progress import waiting
from training.run.base import FAMILY
from training.run.directory import Run

if TYPE_CHECKING:
    from export.folder.write import Target
    from gptcore.facts import Check

KEPT = "; --out is unchanged"
SMALLER = [name for name in VARIANTS if name != "fp32"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?", help="the run directory that training wrote")
    parser.add_argument(
        "--from-hf",
        type=Path,
        metavar="DIR",
        help="export Hugging Face's model in DIR, not a run",
    )
    parser.add_argument(
        "--from-gguf",
        type=Path,
        metavar="FILE",
        help="export the model in a GGUF file, not a run",
    )
    parser.add_argument("--out", type=Path, help="the model folder to write")
    add_folder_arguments(parser)


def add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the content of the model folder."""
    parser.add_argument("--name", help="the model's name (default: that of the folder)")
    parser.add_argument(
        "--license",
        type=licence,
        help="licence for the model card, as the Hub names it (default: the model's own or none)",
    )
    parser.add_argument("--language", default="", help="languages for the model card, as `en,zh`")
    parser.add_argument("--datasets", default="", help="Hub names of data sets for the model card")
    parser.add_argument(
        "--context",
        type=int,
        help="for a model made elsewhere: reduce the context to this many tokens",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="for a model made elsewhere: the text to measure it on (default: the project's own "
        "dialogues)",
    )
    parser.add_argument(
        "--quantize",
        default="",
        metavar="FORMATS",
        help=f"also write smaller or faster files: some of {','.join(SMALLER)}",
    )
    parser.add_argument(
        "--force", action="store_true", help="keep such files even if they are much worse than fp32"
    )
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="also write the graphs that the page's Inspect needs, as `python -m export inspect` "
        "does, unless the model has more than 50 million parameters",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print each comparison with its worst difference"
    )


def run(options: argparse.Namespace) -> int:
    check_source(options)
    check_target(options, options.from_gguf.name if options.from_gguf else "")
    if options.from_hf:
        return export_folder(options.from_hf, options)
    if options.from_gguf:
        from export.gguf.to_hugging_face import to_hugging_face

        with work_folder(options.out, "gguf") as place:
            folder = place / options.from_gguf.name
            with waiting("unpacking the file"):
                to_hugging_face(options.from_gguf, folder)
            return export_folder(folder, options)
    with waiting("starting PyTorch"):
        from export.folder.write import export_run

    target = target_of(options, options.run / FAMILY)
    return tell(export_run(Run.load(options.run), target), options, str(options.run))


def export_folder(folder: Path, options: argparse.Namespace, origin: str = "") -> int:
    """Export a model made elsewhere from a folder of Hugging Face's kind; return the exit code.

    `options`: --out, and those of add_folder_arguments. `origin`: see Imported.source.
    """
    with waiting("starting PyTorch"):
        from export.pretrained.hugging_face import export_pretrained

    target = target_of(options, folder)
    checks = export_pretrained(folder, target, options.text, options.context, origin)
    return tell(checks, options, origin or folder.name)


def target_of(options: argparse.Namespace, family: Path) -> "Target":
    """Return the target that the options describe; `family` may hold the model's own card."""
    from export.folder.card import Hub, read_hub
    from export.folder.write import Target

    own = read_hub(family)
    hub = Hub(
        options.license or own.license,
        split_names(options.language),
        split_names(options.datasets),
        "" if options.license else own.terms,
    )
    name = options.name or options.out.name
    return Target(
        options.out, name, hub, split_names(options.quantize), options.force, options.inspect
    )


def licence(text: str) -> str:
    """Return a licence's name, which stands in a README's front matter; for `type=`."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of the Hub's, such as mit, apache-2.0, cc-by-4.0 or other"
        )
    return text


def split_names(text: str) -> list[str]:
    """Return the names in a list such as `int8,q4`, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def tell(checks: "list[Check]", options: argparse.Namespace, source: str) -> int:
    """Print what was exported and compared, and the next command; return the exit code."""
    from export.verify.report import claim, print_report

    if options.verbose:
        print_report(checks)
    is_translator = isinstance(read_facts(options.out).config, Seq2SeqConfig)
    option = "--translate" if is_translator else "--model"
    print(f"exported {source} to {options.out}; {claim(checks)}")
    print(f"next: python app.py {option} {word(options.out)}")
    return 0


def check_source(options: argparse.Namespace) -> None:
    """Raise UserError for mistakes that can be found before torch is imported."""
    if sum(source is not None for source in (options.run, options.from_hf, options.from_gguf)) != 1:
        raise UserError("name one of a run directory, --from-hf DIR or --from-gguf FILE")
    if options.out is None:
        gguf, folder = options.from_gguf, options.run or options.from_hf
        name = gguf.stem if gguf else folder.absolute().name
        raise UserError(f"name the folder to write: --out {word(f'models/{name}')}")
    if options.run:
        if options.context or options.text:
            raise UserError("--context and --text are for models made elsewhere: a run has its own")
        Run.load(options.run)
    elif options.from_gguf and not options.from_gguf.is_file():
        raise UserError(f"--from-gguf {options.from_gguf} is not a file: name a .gguf file")
    elif options.from_hf and not options.from_hf.is_dir():
        raise UserError(
            f"--from-hf {options.from_hf} is not a folder: `python -m export fetch "
            f"OWNER/NAME` fetches a model and exports it"
        )


def check_target(options: argparse.Namespace, source: str) -> None:
    """Raise UserError for what else can be found before anything is fetched or unpacked.

    `source`: see Imported; "" if it is not known yet.
    """
    check_model_folder(options.out)
    if source:
        check_imported(options.out, source)
    for name in split_names(options.quantize):
        check_choice("number format", name, SMALLER)
    if options.text:
        find_files([options.text])
