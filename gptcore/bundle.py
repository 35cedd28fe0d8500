"""The model folder: where its files are, whether they are sound, what they say.

    >>> bundle = load_bundle("models/default")                           # doctest: +SKIP
    >>> bundle.config.block_size, bundle.is_chat                         # doctest: +SKIP
    (512, True)

`gptcore.json` holds our own facts and the sha256 of every other file; nothing is loaded
from a folder before the hashes have been compared.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.facts import FORMAT, ModelFacts, as_json, check_format, read_as
from gptcore.system.files import file_sha256, read_json
from gptcore.text.tokenizer import Tokenizer

FACTS = "gptcore.json"
ONNX = Path("onnx") / "model.onnx"
# The same model in other number formats, under the names that transformers.js looks for.
VARIANTS = {
    "fp32": "onnx/model.onnx",
    "fp16": "onnx/model_fp16.onnx",
    "int8": "onnx/model_quantized.onnx",  # weights and activations; what browsers take
    "q8": "onnx/model_int8.onnx",  # weights alone, in blocks
    "q4": "onnx/model_q4.onnx",
}
INSPECT = Path("onnx") / "inspect.onnx"  # optional
WEIGHTS = "model.safetensors"  # under Llama's names; for PyTorch
# Of a translation model, in place of model.onnx; its source has a tokenizer of its own.
ENCODER, DECODER = "encoder_model.onnx", "decoder_with_past_model.onnx"
SOURCE_TOKENIZER = "source_tokenizer"


@dataclass(frozen=True)
class Bundle:
    """A verified model folder."""

    path: Path
    config: ModelConfig
    tokenizer: Tokenizer
    facts: ModelFacts

    @property
    def variants(self) -> dict[str, Path]:
        """The files of onnx/ that hold the model, by the name of their number format."""
        files = VARIANTS.items()
        return {name: self.path / file for name, file in files if file in self.facts.sha256}

    @property
    def inspect(self) -> Path | None:
        """The graph that returns attention too, where the folder has it."""
        return self.path / INSPECT if INSPECT.as_posix() in self.facts.sha256 else None

    @property
    def is_chat(self) -> bool:
        """Whether the model was trained on conversations; else it only continues text."""
        return self.facts.chat

    @property
    def name(self) -> str:
        return self.facts.name


@dataclass(frozen=True)
class TranslationBundle(Bundle):
    """A verified folder of a translation model; `tokenizer` is the target's."""

    source_tokenizer: Tokenizer

    @property
    def examples(self) -> list[str]:
        """Sentences to try."""
        return list(self.facts.examples)


def default_model() -> Path:
    """The folder of the model that ships: in the installed package, or beside it in a checkout
    and a Space."""
    package, folder = Path(__file__).parent, Path("models") / "default"
    return package / folder if (package / folder).is_dir() else package.parent / folder


def load_bundle(folder: str | Path) -> Bundle:
    """Read and verify a model folder. UserError names the file that is missing or damaged."""
    folder, facts = Path(folder), read_folder(Path(folder))
    config = facts.config
    if isinstance(config, Seq2SeqConfig):
        raise UserError(f"{folder} is a translation model: give it to app.py --translate")
    bundle = Bundle(folder, config, load_tokenizer(folder, config.vocab_size), facts)
    if not bundle.variants:
        raise UserError(f"{folder / FACTS} does not list {ONNX}: export the model again")
    return bundle


def load_translation_bundle(folder: str | Path) -> TranslationBundle:
    """`load_bundle` for a translation model."""
    folder, facts = Path(folder), read_folder(Path(folder))
    config = facts.config
    if not isinstance(config, Seq2SeqConfig):
        raise UserError(f"{folder} is no translation model: give it to app.py --model")
    tokenizer = load_tokenizer(folder, config.vocab_size)
    source_tokenizer = load_tokenizer(folder / SOURCE_TOKENIZER, config.source_vocab_size)
    return TranslationBundle(folder, config, tokenizer, facts, source_tokenizer)


def load_any_bundle(folder: str | Path) -> Bundle:
    """`load_bundle` or `load_translation_bundle`, whichever it is."""
    is_translation = isinstance(read_facts(Path(folder)).config, Seq2SeqConfig)
    return (load_translation_bundle if is_translation else load_bundle)(folder)


def check_whole(bundle: Bundle) -> None:
    """UserError if a folder was shipped without what another form of it is made from."""
    for name in (VARIANTS["fp32"], WEIGHTS):
        if not (bundle.path / name).is_file():
            raise UserError(
                f"{bundle.path} was shipped without {name}: name the folder that it was made from"
            )


def read_folder(folder: Path) -> ModelFacts:
    """The folder's facts, once every file in it has the hash that they name."""
    facts = read_facts(folder)
    for name, expected in facts.sha256.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing: export the model again")
        if file_sha256(path) != expected:
            raise UserError(f"{path} is damaged or changed (its sha256 differs): export it again")
    return facts


def load_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.vocab_size != vocab_size:
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens and the model "
            f"{vocab_size}: they are not of one export"
        )
    return tokenizer


def read_facts(folder: Path) -> ModelFacts:
    """gptcore.json, of this format or an older one. UserError names what is wrong in it."""
    if not folder.is_dir():
        raise UserError(f"no model folder at {folder}: name one that `python -m export` wrote")
    path = folder / FACTS
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise UserError(
            f"{folder} is no model folder, {FACTS} is missing: run `python -m export RUN --out DIR`"
        ) from None
    if check_format(values, FORMAT, str(path)) == 1:
        values = from_first_format(values)
    return read_as(ModelFacts, values, str(path))


def from_first_format(values: Any) -> Any:
    """The first format had no number, and called an imported model's source "from"."""
    if isinstance(values, dict) and isinstance(imported := values.get("imported"), dict):
        renamed = {"source" if key == "from" else key: value for key, value in imported.items()}
        return values | {"imported": renamed}
    return values


def write_facts(folder: Path, facts: ModelFacts) -> None:
    """Write gptcore.json with the hash of every file in the folder; the last step of an export."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != FACTS)
    hashes = {p.relative_to(folder).as_posix(): file_sha256(p) for p in files}
    facts = dataclasses.replace(facts, sha256=hashes, format=FORMAT)
    text = json.dumps(as_json(facts), indent=2, ensure_ascii=False)
    (folder / FACTS).write_text(text + "\n", encoding="utf-8")
