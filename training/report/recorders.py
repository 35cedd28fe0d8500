"""Where a run's figures and samples go: the run directory's files, and TensorBoard if wished.

>>> for recorder in open_recorders(run, World(), resumed_at=None):      # doctest: +SKIP
...     recorder.scalars(10, {"loss": 2.5})
"""

from typing import Protocol

from training.machine.processes import World
from training.report.events import Events
from training.report.report import write_report
from training.run.directory import Run

Samples = list[tuple[str, str]]  # prompts, and what the model made of them


class Recorder(Protocol):
    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def samples(self, step: int, samples: Samples) -> None: ...

    def close(self) -> None: ...


class Files:
    """metrics.jsonl, samples.md and the pictures of them."""

    def __init__(self, run: Run):
        self.run = run

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self.run.log(step=step, **values)
        if "bits_per_byte" in values:
            self.run.draw_loss()
            write_report(self.run)
            self.run.drop_old_checkpoints()  # the best may be another now

    def samples(self, step: int, samples: Samples) -> None:
        self.run.add_samples(step, samples)

    def close(self) -> None:
        """Every line has been written already."""


def open_recorders(run: Run, world: World, resumed_at: int | None) -> list[Recorder]:
    """None on other processes than the first."""
    if not world.is_first:
        return []
    events = [Events(run.path / "tensorboard", resumed_at)] if run.train.tensorboard else []
    return [Files(run), *events]
