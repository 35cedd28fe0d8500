"""What a run says of itself, config.json: typed and numbered, as gptcore.facts reads it.

>>> RunData("book.txt", chat=False, n_bytes=10, shards="runs/shards/1f0c").text.source
'book.txt'
"""

import dataclasses
from dataclasses import dataclass, field

from gptcore.config import ModelConfig
from gptcore.facts import TextFacts
from training.run.clock import Clock
from training.run.config import TrainConfig

FORMAT = 2  # of a run's config.json; the first format had no number


@dataclass(frozen=True)
class RunData(TextFacts):
    """The text, and where it is on this machine; `shards` is None for a translation."""

    shards: str | None = None  # a folder or a URL
    examples: tuple[str, ...] = ()  # sentences to try with a translator

    @property
    def text(self) -> TextFacts:
        """What an exported model says of it."""
        names = [field.name for field in dataclasses.fields(TextFacts)]
        return TextFacts(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Settings:
    """config.json of a run."""

    model: ModelConfig
    train: TrainConfig
    data: RunData
    clock: Clock | None = None  # of a plan for a time, until it is fitted
    options: dict[str, str] = field(default_factory=dict)  # further ones it was started with
    format: int = FORMAT
