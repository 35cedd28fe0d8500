"""What a model folder says of itself, gptcore.json: typed, numbered, strictly read.

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

FORMAT = 2  # of gptcore.json; the first format had no number


@dataclass(frozen=True)
class EarlierStage:
    """An earlier training that a model went through."""

    name: str
    source: str
    steps: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class TextFacts:
    """The text that a model was trained on; None where a kind of training has no such figure."""

    source: str
    chat: bool  # whether there are conversations in it
    n_bytes: int
    n_documents: int | None = None
    n_pairs: int | None = None  # of sentences, for a translator
    corpus_sha256: str | None = None
    expected_bits_per_byte: float | None = None  # by the plan
    datasets: dict[str, float] = field(default_factory=dict)  # passes over each
    stages: tuple[EarlierStage, ...] = ()


@dataclass(frozen=True)
class Training:
    """The run that a model was exported from."""

    step: int
    data: TextFacts
    settings: dict[str, str | int | float]
    tokens: int | None = None  # of a complete run
    seconds: float | None = None


@dataclass(frozen=True)
class Imported:
    """The Hugging Face model that a folder was made from."""

    source: str
    measured_on: str


@dataclass(frozen=True)
class Parity:
    """One comparison of the graph with PyTorch."""

    name: str
    cases: int
    limit: float
    worst: float | None = None  # None: not compared
    passed: bool | None = None


@dataclass(frozen=True)
class Variant:
    """A file in one number format, as it was measured on held-out text."""

    file: str
    bytes: int
    bits_per_byte: float
    agreement: float  # share of the tokens whose likeliest successor is fp32's
    divergence: float  # KL(fp32 || this), nats


@dataclass(frozen=True)
class Skill:
    """Shares of a skill's conversations that were passed."""

    n: int
    greedy: float
    sampled: float
    lowest: float


@dataclass(frozen=True)
class Scores:
    """What `python -m training evaluate` found."""

    n_seeds: int
    skills: dict[str, Skill]


@dataclass(frozen=True)
class ModelFacts:
    """gptcore.json."""

    name: str
    chat: bool  # whether it was trained on conversations; else it only continues text
    parameters: int
    config: ModelConfig
    training: Training | None = None
    imported: Imported | None = None
    measured: dict[str, float] = field(default_factory=dict)  # on held-out text, at a step
    loss_curve: bool = False  # whether loss.png is there
    examples: tuple[str, ...] = ()  # sentences to try with a translator
    parity: tuple[Parity, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)
    evaluation: Scores | None = None
    sha256: dict[str, str] = field(default_factory=dict)  # of every other file
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in self.sha256:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise UserError(f"sha256 names {name!r}, which is outside of the folder")


def as_json(facts: Any) -> dict[str, Any]:
    """A dataclass as JSON's types; what is None or empty is left out."""
    return dataclasses.asdict(facts, dict_factory=filled)


def filled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if value not in (None, {}, (), [])}


def read_as(wanted: Any, value: Any, where: str) -> Any:
    """The inverse of as_json: `value`, read from JSON, as the type `wanted`.

    Types are scalars, Literals, dataclasses, and `X | None`, `tuple[X, ...]` and `dict[str, X]`
    of them. A missing key has its default. UserError names `where` (a file), the key and the
    value if a key is unknown or missing, or a value is of another type.
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
        raise UserError(f"{where}: {shorten(repr(values))} is no object of names and values")
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
    """The number of a file's format, 1 where it has none. UserError if it is not known here."""
    number = values.get("format", 1) if isinstance(values, dict) else 1
    check_type(f"{where}: format", number, int)
    if not (1 <= number <= newest):
        raise UserError(
            f"{where} has format={number}, and this version of gptcore knows 1 to {newest}: use a "
            f"newer gptcore"
        )
    return number
