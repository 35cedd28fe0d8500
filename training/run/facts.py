"""The typed content of a run's config.json, read by gptcore.typed_json.

>>> RunData("book.txt", chat=False, n_bytes=10, shards="runs/shards/1f0c").text.source
'book.txt'
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from gptcore.config import ModelConfig
from gptcore.facts import Imported, TextFacts
from training.run.clock import Clock
from training.run.config import TrainConfig

FORMAT = 1  # format number of a run's config.json
FEW_HELD_OUT = 1000  # tokens; a loss over fewer is mostly chance, so they are learned, too
HELD_OUT = ("bits_per_byte", "val_loss", "bleu", "chrf")  # figures of held-out text


@dataclass(frozen=True)
class RunData(TextFacts):
    """Facts about the training text, and its place on this machine."""

    shards: str | None = None  # folder or URL of the token shards; None for a translator
    planned_steps: int | None = None  # those that the expected bits per byte are for
    needed_steps: int | None = None  # to learn its conversations, if the time allows for fewer
    n_tokens: int | None = None  # of the text
    held_out_tokens: int | None = None  # with a loss, which is measured on them
    held_out_bytes: int | None = None  # of these tokens
    examples: tuple[str, ...] = ()  # questions or sentences for a person to try

    @property
    def few_held_out(self) -> bool:
        """Whether so little text is held out that its loss cannot choose between weights."""
        return self.held_out_tokens is not None and self.held_out_tokens < FEW_HELD_OUT

    def telling(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Return the figures to show: not those of the held-out text if there is so little."""
        hidden = HELD_OUT if self.few_held_out else ()
        return {key: value for key, value in figures.items() if key not in hidden}

    @property
    def text(self) -> TextFacts:
        """The facts about the text that an exported model carries."""
        names = [field.name for field in dataclasses.fields(TextFacts)]
        return TextFacts(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Base:
    """The weights that a run started from, in a file on this machine."""

    path: str
    sha256: str  # "" if they are a run's adapters merged, which are in no file
    imported: Imported | None = None  # the model made elsewhere that they come from
    name: str = ""  # of the model or the run


@dataclass(frozen=True)
class Settings:
    """The content of a run's config.json."""

    model: ModelConfig
    train: TrainConfig
    data: RunData
    clock: Clock | None = None  # the time budget of a planned run, until the steps are fitted
    options: dict[str, str] = field(default_factory=dict)  # other options of the first command
    base: Base | None = None  # of a fine-tuning
    format: int = FORMAT
