"""The model folder: where its files are, whether they are intact, and what they contain.

    >>> bundle = load_bundle("models/default")                           # doctest: +SKIP
    >>> bundle.config.block_size, bundle.is_chat                         # doctest: +SKIP
    (512, True)

`gptcore.json` holds facts about the model and the sha256 of every other file. No file is read
before its hash is compared, and the tokenizer must be listed, too. The card alone may be edited.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gptcore.checks import UserError, nearest_beside
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.facts import FORMAT, ModelFacts
from gptcore.system.files import (
    check_links,
    differs_in_line_ends,
    file_sha256,
    files_in,
    hashes,
    is_lfs_pointer,
    read_object,
    write_json,
)
from gptcore.text.tokenizer import FACTS_NAME, FILE_NAME, Tokenizer
from gptcore.typed_json import as_json, check_format, read_as

FACTS = "gptcore.json"
ONNX = Path("onnx") / "model.onnx"
# The same model in other number formats, under the names that transformers.js looks for.
VARIANTS = {
    "fp32": "onnx/model.onnx",
    "fp16": "onnx/model_fp16.onnx",
    "int8": "onnx/model_quantized.onnx",  # weights and activations in 8 bits; used in browsers
    "q8": "onnx/model_int8.onnx",  # weights alone in 8 bits, one scale per block
    "q4": "onnx/model_q4.onnx",
    "q4f16": "onnx/model_q4f16.onnx",
}
# The graphs of export/formats/serving.py, for our own engine; their weights are in the files above.
SERVING = {
    "fp32": "onnx/serving.onnx",
    "q8": "onnx/serving_int8.onnx",
    "q4": "onnx/serving_q4.onnx",
}
CARD = "README.md"  # its owner may edit it: nothing that runs the model reads it
WEIGHTS = "model.safetensors"  # parameters for PyTorch, under Llama's names
INDEX = "model.safetensors.index.json"  # in place of it if they are in several files
# The weights that a training can go on from, the best first; a shipped folder has no fp32.
TRAINABLE = (WEIGHTS, VARIANTS["q8"], VARIANTS["q4"])
LARGE_BYTES = 1e9
INSPECT = "onnx/inspect.onnx"  # a model folder may lack it
UNTRAINED = "onnx/untrained.onnx"  # and this, the same before training
# A translation model has these two graphs in place of model.onnx, and a second tokenizer for its
# source language.
ENCODER, DECODER = "encoder_model.onnx", "decoder_with_past_model.onnx"
SOURCE_TOKENIZER = "source_tokenizer"


@dataclass(frozen=True)
class Bundle:
    """A verified model folder."""

    path: Path
    config: ModelConfig
    tokenizer: Tokenizer
    facts: ModelFacts
    # The names of files whose hashes have been compared.
    compared: set[str] = field(default_factory=set, compare=False, repr=False, kw_only=True)

    def check(self, variant: str) -> None:
        """Compare the hashes of a variant's weights; raises UserError if a file is damaged."""
        graph = Path(VARIANTS[variant])
        names = {graph.as_posix(), data_file(graph).as_posix()} & self.facts.sha256.keys()
        for name in names - self.compared:
            check_hash(self.path, name, self.facts)
            self.compared.add(name)

    @property
    def variants(self) -> dict[str, Path]:
        """The model files present in onnx/, keyed by number format."""
        files = VARIANTS.items()
        return {name: self.path / file for name, file in files if file in self.facts.sha256}

    @property
    def serving(self) -> dict[str, Path]:
        """The serving graphs present in onnx/, keyed by the variant whose weights they use."""
        files, listed = SERVING.items(), self.facts.sha256
        has_both = {n: f for n, f in files if f in listed and VARIANTS[n] in listed}
        return {name: self.path / file for name, file in has_both.items()}

    @property
    def is_chat(self) -> bool:
        """Whether the model was trained on conversations; other models only continue text."""
        return self.facts.chat

    @property
    def name(self) -> str:
        return self.facts.name


@dataclass(frozen=True)
class TranslationBundle(Bundle):
    """A verified folder of a translation model; `tokenizer` is for the target language."""

    config: Seq2SeqConfig
    source_tokenizer: Tokenizer


def data_file(graph: Path) -> Path:
    """Return where the weights of a graph lie if they are too large for its own file."""
    return graph.with_name(f"{graph.name}_data")


def graph_bytes(graph: Path) -> int:
    """Return the size of a graph's file, and of the one with its weights if it has one."""
    paths = graph, data_file(graph)
    return sum(path.stat().st_size for path in paths if path.is_file())


def default_model() -> Path:
    """Return the folder of the model that ships with gptcore.

    It lies in the installed package, or beside the package in a checkout or a Space.
    """
    package, folder = Path(__file__).parent, Path("models") / "default"
    return package / folder if (package / folder).is_dir() else package.parent / folder


def find_models(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the folders of decoders within a folder, and a line about each other model folder."""
    if not folder.is_dir():
        raise UserError(f"no folder of models at {folder}: make it, or name another with --models")
    found, others = [], []
    for path in sorted(path.parent for path in folder.glob(f"*/{FACTS}")):
        if path.name.startswith("."):  # an export writes it
            continue
        try:
            if isinstance(read_facts(path).config, Seq2SeqConfig):
                others.append(f"{path}: a translation model, not served")
            else:
                found.append(path)
        except UserError as error:
            others.append(f"not served: {error}")
    return found, others


def load_bundle(folder: str | Path, with_weights: bool = True) -> Bundle:
    """Read and verify the folder of a decoder.

    `with_weights`: whether those are verified, too; else `Bundle.check` does it for the ones that
    are used. Of a large model all weights, in all formats, take a minute.
    Raises UserError naming the file that is missing or damaged.
    """
    folder, facts = Path(folder), read_folder(Path(folder), with_weights)
    config = facts.config
    if isinstance(config, Seq2SeqConfig):
        raise UserError(f"{folder} is a translation model: give it to app.py --translate")
    compared = {name for name in facts.sha256 if with_weights or not holds_weights(name)}
    tokenizer = load_tokenizer(folder, config.vocab_size)
    bundle = Bundle(folder, config, tokenizer, facts, compared=compared)
    if not bundle.variants:
        raise UserError(f"{folder / FACTS} does not list {ONNX}: export the model again")
    return bundle


def load_translation_bundle(folder: str | Path) -> TranslationBundle:
    """Read and verify the folder of a translation model; raises UserError as `load_bundle` does."""
    folder, facts = Path(folder), read_folder(Path(folder))
    config = facts.config
    if not isinstance(config, Seq2SeqConfig):
        raise UserError(f"{folder} is not a translation model: give it to app.py --model")
    for name in (ENCODER, DECODER):
        if (path := (ONNX.parent / name).as_posix()) not in facts.sha256:
            raise UserError(f"{folder / FACTS} does not list {path}: export the model again")
    tokenizer = load_tokenizer(folder, config.vocab_size)
    source_tokenizer = load_tokenizer(folder / SOURCE_TOKENIZER, config.source_vocab_size)
    return TranslationBundle(folder, config, tokenizer, facts, source_tokenizer)


def say_if_large(folder: Path) -> None:
    """Print one line if a folder is so large that it takes seconds until its model answers."""
    n_bytes = sum(path.stat().st_size for path in files_in(folder).values())
    if n_bytes >= LARGE_BYTES:
        print(f"checking and opening {folder} ...", flush=True)


def read_folder(folder: Path, with_weights: bool = True) -> ModelFacts:
    """Read gptcore.json, then check that the files it lists are there, with the sha256 it names.

    The card may differ: its owner edits it.
    """
    facts = read_facts(folder)
    check_links(folder)
    check_listed(folder, facts)
    for name in facts.sha256:
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing: export the model again")
        if name != CARD and (with_weights or not holds_weights(name)):
            check_hash(folder, name, facts)
    return facts


def holds_weights(name: str) -> bool:
    """Return whether a file of a decoder's folder has the weights in some format."""
    return name in VARIANTS.values() or name.endswith((".onnx_data", ".safetensors"))


def check_hash(folder: Path, name: str, facts: ModelFacts) -> None:
    path, expected = folder / name, facts.sha256[name]
    if file_sha256(path) == expected:
        return
    if is_lfs_pointer(path):
        raise UserError(f"{path} stands for a file of Git LFS: run `git lfs pull` there")
    if not holds_weights(name) and differs_in_line_ends(path, expected):
        raise UserError(
            f"{path} has other line ends than were exported, as git changes them on Windows: "
            f"clone it again with `git clone -c core.autocrlf=false`, or export it again"
        )
    raise UserError(f"{path} is damaged or changed (its sha256 differs): export it again")


def check_listed(folder: Path, facts: ModelFacts) -> None:
    """Raise UserError if a file that is read whether it is listed or not is there and is not."""
    homes = folder, folder / SOURCE_TOKENIZER
    read = [home / name for home in homes for name in (FILE_NAME, FACTS_NAME)]
    read += [data_file(folder / name) for name in facts.sha256 if name.endswith(".onnx")]
    for path in read:
        if path.is_file() and path.relative_to(folder).as_posix() not in facts.sha256:
            raise UserError(f"{path} is not listed in {FACTS}: delete it")


def load_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.vocab_size != vocab_size:
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens and the model "
            f"{vocab_size}: they are of different exports, export the model again"
        )
    return tokenizer


def read_facts(folder: Path) -> ModelFacts:
    """Read gptcore.json; raises UserError naming what is wrong in it."""
    if not folder.is_dir():
        hint = nearest_beside(folder, "models") or "name one that `python -m export` wrote"
        raise UserError(f"no model folder at {folder}: {hint}")
    path = folder / FACTS
    try:
        values = read_object(path)
    except FileNotFoundError:
        raise UserError(
            f"{folder} is not a model folder, {FACTS} is missing: "
            f"run `python -m export RUN --out DIR`"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    check_format(values, FORMAT, str(path))
    return read_as(ModelFacts, values, str(path))


def write_facts(folder: Path, facts: ModelFacts) -> None:
    """Write gptcore.json with the sha256 of every file in the folder; an export does this last."""
    names = (name for name in files_in(folder) if Path(name).name != FACTS)
    save_facts(folder, facts, hashes(folder, names))


def add_files(folder: Path, names: Iterable[str]) -> None:
    """Add the sha256 of new files to gptcore.json.

    Files that a person has put there stay the person's: no export may delete them.
    """
    facts = read_facts(folder)
    save_facts(folder, facts, facts.sha256 | hashes(folder, names))


def save_facts(folder: Path, facts: ModelFacts, sha256: dict[str, str]) -> None:
    facts = dataclasses.replace(facts, sha256=dict(sorted(sha256.items())), format=FORMAT)
    write_json(folder / FACTS, as_json(facts))
