"""python -m export fetch NAME: a model of the Hugging Face Hub to a verified model folder.

python -m export fetch                             list the models that are known by name
python -m export fetch smollm2-135m                fetch one, and write models/smollm2-135m
python -m export fetch OWNER/NAME --out models/it  any other of a supported family
"""

import argparse
from contextlib import redirect_stdout
from pathlib import Path

from export.commands import export
from export.pretrained.registry import find, is_tried, listed
from gptcore.system.files import read_object
from training.machine.progress import waiting

KEPT = "; what was fetched is kept: run the same command to continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="a name of --list, or a repository OWNER/NAME")
    parser.add_argument("--list", action="store_true", help="list the models known by name")
    parser.add_argument(
        "--mirror", type=Path, metavar="DIR", help="take it from the folder DIR/OWNER/NAME"
    )
    parser.add_argument("--out", type=Path, help="the model folder (default: models/NAME)")
    export.add_folder_arguments(parser)


def run(options: argparse.Namespace) -> int:
    if options.list or not options.model:
        print(listed())
        return 0
    model = find(options.model)
    options.out = options.out or Path("models") / Path(options.model.lower()).name
    from export.pretrained.hub import fetch_model, find_in_mirror, home  # imports huggingface_hub

    export.check_target(options, model.repo)
    if options.mirror:
        folder = find_in_mirror(options.mirror, model.repo)
    else:
        folder = home() / model.repo
        fetch_model(folder, model.repo, lambda folder: check_supported(folder, options))
    code = export.export_folder(folder, options, model.repo)
    family = read_object(folder / "config.json").get("model_type", "llama")
    if not is_tried(family):
        print(
            f"the family {family} was tried here with small random weights only, not with real ones"
        )
    return code


def check_supported(folder: Path, options: argparse.Namespace) -> None:
    """Raise UserError for an unsupported model, before its gigabytes are fetched."""
    with waiting("starting PyTorch"):
        from export.pretrained.config import read_config
        from export.pretrained.tokenizer import read_tokenizer

    path = folder / "config.json"
    config = read_config(read_object(path), path, options.context)
    with redirect_stdout(None):  # the export says it
        read_tokenizer(folder, config.vocab_size)
