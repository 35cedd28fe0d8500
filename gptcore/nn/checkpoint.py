"""Checkpoints: safetensors and JSON, written atomically and verified when read.

        step-1000/model.safetensors    the model's parameters, under their own names
        step-1000/state.safetensors    all other training state, such as optimizer moments
        step-1000/manifest.json        facts and the sha256 of the other files; written last

A checkpoint has its name only when it is complete: its files are written into a temporary
folder and flushed to the disk, then the folder is renamed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import GPT
from gptcore.nn.layers import POSITIONS
from gptcore.system.files import file_sha256, new_folder, sealed, unseal

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
Tensors = dict[str, Tensor]


class Checkpoint(NamedTuple):
    """A checkpoint whose files were verified."""

    path: Path
    model: Tensors
    state: Tensors
    facts: dict[str, Any]


def save_checkpoint(folder: Path, model: Tensors, state: Tensors, facts: dict[str, Any]) -> None:
    """Write a checkpoint and replace an existing one of this name.

    Raises OSError if the files cannot be written, for example on a full disk.
    """
    with new_folder(folder) as temporary:
        for name, tensors in ((MODEL, model), (STATE, state)):
            tensors = {key: t.detach().cpu().contiguous() for key, t in tensors.items()}
            try:
                save_file(tensors, temporary / name)
                (temporary / name).chmod(0o644)  # the file is readable only for its owner
            except SafetensorError as error:  # its text lacks the system's error number
                raise OSError(f"{folder / name} cannot be written: {error}") from None
        hashes = {name: file_sha256(temporary / name) for name in (MODEL, STATE)}
        text = sealed({"facts": facts, "sha256": hashes})
        (temporary / MANIFEST).write_text(text, encoding="utf-8")


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint. Raises UserError if a file is missing or damaged by even one bit."""
    facts = verify_checkpoint(folder)
    try:
        return Checkpoint(folder, load_file(folder / MODEL), load_file(folder / STATE), facts)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder} cannot be read: {error}") from None


def verify_checkpoint(folder: Path) -> dict[str, Any]:
    """Return a checkpoint's facts once all files are verified; raises UserError if one is
    damaged."""
    try:
        manifest = unseal((folder / MANIFEST).read_text(encoding="utf-8"))
        facts, hashes = manifest["facts"], manifest["sha256"]
        for name in (MODEL, STATE):
            if file_sha256(folder / name) != hashes[name]:
                raise UserError(f"{folder / name} is damaged: its sha256 is not the manifest's")
        return facts
    except FileNotFoundError as error:
        raise UserError(f"{folder} is incomplete: {Path(error.filename).name} is missing") from None
    except UserError:
        raise
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / MANIFEST} is damaged") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error}") from None


def first_sound(paths: Iterable[Path], folder: Path) -> tuple[Checkpoint, list[str]]:
    """Return the first intact one of these checkpoints, and the errors of those before it.

    Raises UserError if none of them is intact.
    """
    problems: list[str] = []
    for path in paths:
        try:
            return load_checkpoint(path), problems
        except UserError as error:
            problems.append(str(error))
    details = "; ".join(problems) or "there is none yet, train first"
    raise UserError(f"no sound checkpoint in {folder}: {details}")


def load_weights(model: torch.nn.Module, tensors: dict[str, Tensor], source: object) -> None:
    """Copy a checkpoint's tensors into the model's trainable parameters.

    `source` names them in errors. Raises UserError if names or shapes differ from the model's.
    """
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    wanted = {name: tuple(p.shape) for name, p in trained}  # shared ones once
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    differing = sorted(dict(wanted.items() ^ found.items()))
    if differing:
        name = differing[0]
        raise UserError(
            f"{source} does not belong to this model: {len(differing)} tensors differ, such as "
            f"{name}: {found.get(name, 'missing')} where {wanted.get(name, 'none')} is needed"
        )
    model.load_state_dict(tensors, strict=False)


def model_of(config: ModelConfig, tensors: Tensors, source: object) -> GPT:
    """Build a decoder whose parameters are these tensors themselves: memory holds them once.

    Raises UserError as `load_weights` does.
    """
    with torch.device("meta"):
        model = build_model(config)
    load_weights(model, {name: tensor.to("meta") for name, tensor in tensors.items()}, source)
    model.position = POSITIONS[config.position](config)  # its tables may be computed, not stored
    parameters = {name: nn.Parameter(tensor) for name, tensor in tensors.items()}
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    names = model.named_parameters(remove_duplicate=False)  # a tied parameter has two
    state = {name: parameters[first[id(parameter)]] for name, parameter in names}
    model.load_state_dict(state, strict=False, assign=True)
    return model
