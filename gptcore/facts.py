"""The facts in a model folder's gptcore.json, as dataclasses with a format number.

>>> ModelFacts("mine", chat=True, parameters=1, config=ModelConfig()).format
1
"""

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from unicodedata import category

from gptcore.checks import UserError
from gptcore.config import ModelConfig

FORMAT = 1  # format number of gptcore.json


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
    reverse: bool = False  # whether a translator reads the second column
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
    """What a model folder was made from."""

    source: str  # the Hub's OWNER/NAME, or the name of a folder or of a GGUF file
    measured_on: str


@dataclass(frozen=True)
class Start:
    """The model of ours, or of another user, whose weights a training went on from."""

    name: str
    license: str = ""  # as its card names it


@dataclass(frozen=True)
class Check:
    """One comparison of a graph, mostly with PyTorch; whether it passed follows from the rest."""

    name: str
    cases: int
    limit: float
    worst: float | None = None  # absolute difference or number of tokens; None: not compared
    passed: bool | None = None

    def __post_init__(self) -> None:
        passed = None if self.worst is None else self.worst <= self.limit  # false for NaN
        object.__setattr__(self, "passed", passed)


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
    start: Start | None = None
    measured: dict[str, float] = field(default_factory=dict)  # at a step, on held-out text
    loss_curve: bool = False  # whether the folder has loss.png
    sampling: dict[str, float] = field(default_factory=dict)  # what its makers recommend
    examples: tuple[str, ...] = ()  # questions or sentences for a person to try
    parity: tuple[Check, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)
    evaluation: Scores | None = None
    sha256: dict[str, str] = field(default_factory=dict)  # hash of every other file in the folder
    format: int = FORMAT

    def __post_init__(self) -> None:
        if any(category(sign) in ("Cc", "Cs") for sign in self.name):  # it is shown on one line
            raise UserError(
                f"name={self.name!r} holds a line break, another control character or half a "
                f"character"
            )
        for name in self.sha256:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or any(sign in name for sign in "\\:"):
                raise UserError(f"sha256 names {name!r}, which is outside the folder")
