"""A model folder that is to become something else: of either kind, whole, with its weights.

>>> bundle = load_any_bundle("models/mine")                          # doctest: +SKIP
>>> weight_files(bundle.path)                                          # doctest: +SKIP
[PosixPath('models/mine/model.safetensors')]
"""

from pathlib import Path

from gptcore.bundle import (
    INDEX,
    VARIANTS,
    WEIGHTS,
    Bundle,
    load_bundle,
    load_translation_bundle,
    read_facts,
)
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.system.files import read_json
from gptcore.typed_json import read_as


def load_any_bundle(folder: str | Path) -> Bundle:
    """Read and verify a model folder of either kind; raises UserError as `load_bundle` does."""
    is_translation = isinstance(read_facts(Path(folder)).config, Seq2SeqConfig)
    return (load_translation_bundle if is_translation else load_bundle)(folder)


def check_not_small(bundle: Bundle) -> None:
    """Raise UserError if the folder is a small copy without the files that other forms need."""
    for name, other in ((VARIANTS["fp32"], ""), (WEIGHTS, INDEX)):
        if not ((bundle.path / name).is_file() or (bundle.path / other).is_file()):
            raise UserError(
                f"{bundle.path} was shipped without {name}: name the folder that it was made from"
            )


def weight_files(folder: Path) -> list[Path]:
    """Return a folder's safetensors files; raises UserError if one is missing."""
    names, index = {WEIGHTS}, folder / INDEX
    # transformers does not read an index, such as one of an older version, beside the whole file
    if index.exists() and not (folder / WEIGHTS).exists():
        content = read_json(index)
        weight_map = content.get("weight_map") if isinstance(content, dict) else None
        names = set(read_as(dict[str, str], weight_map, f"{index}: weight_map").values())
    paths = [folder / name for name in sorted(names)]
    for path in paths:
        if path.parent != folder or not path.is_file():
            raise UserError(f"{path} is missing: the weights must be there as safetensors")
    return paths
