"""The facts in a model folder's gptcore.json, as typed dataclasses with a format number.

>>> facts = ModelFacts("mine", chat=True, parameters=1, config=ModelConfig())
>>> read_as(ModelFacts, as_json(facts), "gptcore.json") == facts
True
>>> read_as(ModelFacts, as_json(facts) | {"chat": 1}, "gptcore.json")
Traceback (most recent call last):
gptcore.checks.UserError: gptcore.json: chat=1 is not of type bool
"""

import dataclasses
from dataclasses import MISSING, dataclass, field
from pathlib import PurePosixPath
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gptcore.checks import UserError, check_choice, check_type, shorten
from gptcore.config import ModelConfig, Seq2SeqConfig

FORMAT = 2  # format number of gptcore.json; the first format had none


@dataclass(frozen=True)
class EarlierStage:
    """An earlier training run of the same model, before the one that was exported."""

    name: str
    source: str
    steps: int
    tokens: int | None = None  # None if the run was not complete
    seconds: float | None = None


@dataclass(frozen=True)
class TextFacts:
    """The text that a model was trained on; a figure is None if this kind of training has none."""

    source: str
    chat: bool  # whether the text contains conversations
    n_bytes: int
    n_documents: int | None = None
    n_pairs: int | None = None  # number of sentence pairs, for a translator
    reverse: bool | None = None  # whether a translator reads the second column; older lack it
    corpus_sha256: str | None = None
    expected_bits_per_byte: float | None = None  # predicted by the training plan
    datasets: dict[str, float] = field(default_factory=dict)  # number of passes over each data set
    stages: tuple[EarlierStage, ...] = ()


@dataclass(frozen=True)
class Training:
    """The run that a model was exported from."""

    step: int
    data: TextFacts
    settings: dict[str, str | int | float]
    tokens: int | None = None  # None if the run is not complete
    seconds: float | None = None


@dataclass(frozen=True)
class Imported:
    """The folder in Hugging Face's format, or the GGUF file, that a model folder was made from."""

    source: str
    measured_on: str


@dataclass(frozen=True)
class Parity:
    """One comparison of the graph with PyTorch."""

    name: str
    cases: int
    limit: float
    worst: float | None = None  # largest difference found; None: not compared
    passed: bool | None = None


@dataclass(frozen=True)
class Variant:
    """A model file in one number format, with its quality on held-out text."""

    file: str
    bytes: int
    bits_per_byte: float
    agreement: float  # share of tokens after which this file and fp32 predict the same next token
    divergence: float  # KL(fp32 || this), nats


@dataclass(frozen=True)
class Skill:
    """The shares of a skill's test conversations that were passed."""

    n: int
    greedy: float
    sampled: float
    lowest: float


@dataclass(frozen=True)
class Scores:
    """The results of `python -m training evaluate`."""

    n_seeds: int
    skills: dict[str, Skill]
    copies: dict[str, Skill] = field(default_factory=dict)  # values repeated as they were told


@dataclass(frozen=True)
class ModelFacts:
    """The content of gptcore.json."""

    name: str
    chat: bool  # whether the model was trained on conversations; others only continue text
    parameters: int
    config: ModelConfig
    training: Training | None = None
    imported: Imported | None = None
    measured: dict[str, float] = field(default_factory=dict)  # at a step, on held-out text
    loss_curve: bool = False  # whether the folder has loss.png
    examples: tuple[str, ...] = ()  # questions or sentences for a person to try
    parity: tuple[Parity, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)
    evaluation: Scores | None = None
    sha256: dict[str, str] = field(default_factory=dict)  # hash of every other file in the folder
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in self.sha256:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or any(sign in name for sign in "\\:"):
                raise UserError(f"sha256 names {name!r}, which is outside the folder")


def as_json(facts: Any) -> dict[str, Any]:
    """Convert a dataclass to JSON's types; fields that are None or empty are left out."""
    return dataclasses.asdict(facts, dict_factory=filled)


def filled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if value not in (None, {}, (), [])}


def read_as(wanted: Any, value: Any, where: str) -> Any:
    """Convert `value`, read from JSON, to the type `wanted`: the inverse of as_json.

    `wanted` is a scalar type, a Literal, a dataclass, or `X | None`, `tuple[X, ...]` or
    `dict[str, X]` of these. A missing key gets its default. Raises UserError naming `where` (a
    file), the key and the value if a key is unknown or missing, or a value has another type.
    """
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return read_dataclass(wanted, value, where)
    kinds = get_args(wanted)
    if get_origin(wanted) is Literal:
        check_choice(f"value of {where}:", value, kinds)
        return value
    if get_origin(wanted) is UnionType and NoneType in kinds:
        return None if value is None else read_as(kinds[0], value, where)
    if get_origin(wanted) is tuple and isinstance(value, list):
        return tuple(read_as(kinds[0], item, f"{where}, item {i}") for i, item in enumerate(value))
    if get_origin(wanted) is dict and isinstance(value, dict):
        return {key: read_as(kinds[1], item, f"{where}: {key}") for key, item in value.items()}
    check_type(where, value, get_origin(wanted) if get_origin(wanted) in (tuple, dict) else wanted)
    return value


def read_dataclass(cls: type, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{where}: {shorten(repr(values))} is not an object of names and values")
    if cls is ModelConfig and "source_vocab_size" in values:
        cls = Seq2SeqConfig
    hints, fields = get_type_hints(cls), dataclasses.fields(cls)
    for key in values:
        check_choice(f"key in {where}:", key, hints)
    for each in fields:
        if each.name not in values and each.default is each.default_factory is MISSING:
            raise UserError(f"{where} lacks {each.name}")
    found = {key: read_as(hints[key], v, f"{where}: {key}") for key, v in values.items()}
    try:
        return cls(**found)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def check_format(values: Any, newest: int, where: str) -> int:
    """Return the format number of a file, 1 if it has none; raises UserError if it is unknown."""
    number = values.get("format", 1) if isinstance(values, dict) else 1
    check_type(f"{where}: format", number, int)
    if not (1 <= number <= newest):
        raise UserError(
            f"{where} has format={number}, and this version of gptcore knows 1 to {newest}: use a "
            f"newer gptcore"
        )
    return number
