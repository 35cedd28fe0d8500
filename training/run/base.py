"""What a fine-tuning starts from: an exported model folder, or another run.

>>> config, tokenizer = shape_of(Path("models/smollm2-135m"))        # doctest: +SKIP
>>> weights, base = open_base(Path("models/smollm2-135m"))           # doctest: +SKIP

A run of adapters (LoRA) holds only these in its checkpoints. It names the file of the other weights
with its sha256, and reads it again when it goes on, is measured or exported.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore.bundle import FACTS, INDEX, TRAINABLE, WEIGHTS, read_facts
from gptcore.checks import UserError, nearest_beside
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.system.files import file_sha256
from gptcore.system.wording import word
from gptcore.text.tokenizer import FACTS_NAME, Tokenizer
from training.run.directory import Run
from training.run.facts import Base

if TYPE_CHECKING:  # it imports torch, and commands check their options before that
    from gptcore.nn.checkpoint import Checkpoint, Tensors

FAMILY = "family"  # folder in the run directory
FAMILY_FILES = (  # those by which other runtimes know a model made elsewhere, and its card
    "config.json",
    "generation_config.json",
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "README.md",
)


def shape_of(path: Path) -> tuple[ModelConfig, Path]:
    """Return the shape of a model folder or run, and its tokenizer's folder. Raises UserError."""
    if (path / FACTS).is_file():
        config, tokenizer = read_facts(path).config, path
    elif path.exists():
        config, tokenizer = Run.load(path).model, path / "tokenizer"
    else:
        listed = "`python -m export fetch --list` names models to fetch"
        hint = nearest_beside(path, "runs", "models") or listed
        raise UserError(f"--init {path} is neither a model folder nor a run: {hint}")
    if isinstance(config, Seq2SeqConfig):
        raise UserError(f"--init {path} is a translator: name a language model")
    return config, tokenizer


def can_chat(path: Path) -> bool:
    """Return whether a model folder or run has learned conversations."""
    return read_facts(path).chat if (path / FACTS).is_file() else Run.load(path).data.chat


def open_base(path: Path) -> tuple["Tensors", Base]:
    """Return the weights of a model folder or of a run's best checkpoint, and where they are.

    Raises UserError if they are missing or damaged.
    """
    if (path / FACTS).is_file():
        facts = read_facts(path)
        name = next((name for name in TRAINABLE if (path / name).is_file()), None)
        if (path / INDEX).is_file():
            raise UserError(f"{path} keeps its weights in several files: --init reads {WEIGHTS}")
        if name is None:
            raise UserError(f"{path} has no weights to go on from: {', '.join(TRAINABLE)}")
        file, sha256 = (path / name).resolve(), facts.sha256.get(name, "")
        base = Base(str(file), sha256, facts.imported, facts.name)
        return read_base(base, facts.config), base
    run = Run.load(path)
    checkpoint = run.best_checkpoint()
    if not run.is_settled:  # when it goes on, it deletes or changes its checkpoints
        raise UserError(
            f"--init {path} is not complete: complete it (python -m training --out {word(path)} "
            f"--resume), or export it, and name the model folder"
        )
    file = (checkpoint.path / WEIGHTS).resolve()
    sha256 = "" if run.train.lora else file_sha256(file)  # adapters merged are in no file
    imported = run.base.imported if run.base else None
    return whole_weights(run, checkpoint), Base(str(file), sha256, imported, path.resolve().name)


def read_base(base: Base, config: ModelConfig) -> "Tensors":
    """Return the verified weights of a file under our names. Raises UserError."""
    from safetensors.torch import load_file

    from gptcore.nn.llama import from_llama
    from training.run.quantized import read_quantized

    path = Path(base.path)
    if not path.is_file():
        raise UserError(f"the run began with the weights in {path}, which is missing: put it back")
    if file_sha256(path) != base.sha256:
        raise UserError(f"{path} is damaged or changed (its sha256 differs)")
    if path.suffix == ".onnx":
        return read_quantized(path, config)
    tensors = load_file(path)
    return from_llama(tensors, config) if "model.embed_tokens.weight" in tensors else tensors


def first_weights(run: Run) -> "Tensors | None":
    """Return the weights that --init named; None without it.

    Raises UserError if they are missing or changed.
    """
    if run.base is None:
        return None
    return read_base(replace(run.base, path=str(base_file(run))), run.model)


def base_file(run: Run) -> Path:
    """Return the file of the weights that a run with a base began with; it may be missing.

    If a folder with both was moved, the file is looked for at the same place relative to the run.
    """
    assert run.base is not None
    path, sha256 = Path(run.base.path), run.base.sha256
    if path.is_file():
        return path
    near = (
        folder.joinpath(*path.parts[i:])
        for folder in run.path.resolve().parents
        for i in range(1, len(path.parts) - 1)  # with its own folder, at least
    )
    return next((file for file in near if file.is_file() and file_sha256(file) == sha256), path)


def whole_weights(run: Run, checkpoint: "Checkpoint") -> "Tensors":
    """Return a checkpoint's weights of all layers; adapters are merged with what they adapt."""
    from training.lora import merged

    base = first_weights(run) if run.train.lora else None
    return merged(base, checkpoint.model) if base else checkpoint.model


def keep_family(path: Path, run: Path) -> None:
    """Copy the files of a model made elsewhere from a model folder, or from a run that has them."""
    is_theirs = (path / FACTS_NAME).is_file() and not Tokenizer.load(path).is_ours
    source = path if is_theirs else path / FAMILY
    for name in FAMILY_FILES:
        if (source / name).is_file():
            (run / FAMILY).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, run / FAMILY / name)
