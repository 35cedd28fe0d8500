"""Checkpoints: safetensors and JSON, written atomically, verified before they are read.

    step-1000/model.safetensors    the model's parameters, under their own names
    step-1000/state.safetensors    whatever else training needs (optimizer moments, RNG)
    step-1000/manifest.json        facts, and sha256 of the other files; written last

A checkpoint appears under its name only when it is complete: everything is written into a
temporary folder and flushed to the disk, then the folder is renamed.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gptcore.checks import UserError
from gptcore.files import file_sha256, new_folder

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"


def save_checkpoint(
    folder: Path, model: dict[str, Tensor], state: dict[str, Tensor], facts: dict[str, Any]
) -> None:
    """Write a checkpoint; an existing one of this name is replaced."""
    with new_folder(folder) as temporary:
        for name, tensors in ((MODEL, model), (STATE, state)):
            tensors = {key: t.detach().cpu().contiguous() for key, t in tensors.items()}
            save_file(tensors, temporary / name)
        hashes = {name: file_sha256(temporary / name) for name in (MODEL, STATE)}
        manifest = json.dumps({"facts": facts, "sha256": hashes}, indent=2)
        (temporary / MANIFEST).write_text(manifest, encoding="utf-8")


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Model tensors, state tensors and facts. UserError if a file is missing or damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        hashes, facts = manifest["sha256"], manifest["facts"]
        for name in (MODEL, STATE):
            if file_sha256(folder / name) != hashes[name]:
                raise UserError(f"{folder / name} is damaged: its sha256 is not the manifest's")
    except FileNotFoundError as error:
        raise UserError(f"{folder} is incomplete: {Path(error.filename).name} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise UserError(f"{folder / MANIFEST} is damaged") from None
    return load_file(folder / MODEL), load_file(folder / STATE), facts


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's `checkpoints/`, newest first, whether sound or not."""
    found = [p for p in folder.glob("step-*") if p.name.removeprefix("step-").isdigit()]
    return sorted(found, key=step_of, reverse=True)


def newest_checkpoint(folder: Path) -> tuple[Path, list[str]]:
    """The newest sound checkpoint, and what is wrong with the newer ones."""
    problems = []
    for path in list_checkpoints(folder):
        try:
            load_checkpoint(path)
            return path, problems
        except UserError as error:
            problems.append(str(error))
    details = "; ".join(problems) or "there is none yet, train first"
    raise UserError(f"no sound checkpoint in {folder}: {details}")


def load_weights(model: torch.nn.Module, tensors: dict[str, Tensor], source: object) -> None:
    """Copy a checkpoint's tensors into a model of the same shape; `source` names them."""
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}  # tied ones once
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    differing = sorted(dict(wanted.items() ^ found.items()))
    if differing:
        name = differing[0]
        raise UserError(
            f"{source} does not belong to this model: {len(differing)} tensors differ, such as "
            f"{name}: {found.get(name, 'missing')} where {wanted.get(name, 'none')} is needed"
        )
    model.load_state_dict(tensors, strict=False)
