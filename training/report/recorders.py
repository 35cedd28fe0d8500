"""Recorders of figures and samples: the run directory's files, and optionally TensorBoard.

>>> for recorder in open_recorders(run, World(), resumed_at=None):      # doctest: +SKIP
...     recorder.scalars(10, {"loss": 2.5})
"""

from typing import Protocol

from training.machine.processes import World
from training.report.events import Events
from training.report.report import write_report
from training.run.directory import Run

Samples = list[tuple[str, str]]  # (prompt, continuation)


class Recorder(Protocol):
    """A destination for the figures and samples of a run."""

    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def samples(self, step: int, samples: Samples) -> None: ...

    def close(self) -> None: ...


class Files:
    """Writes metrics.jsonl, samples.json, samples.md, loss.png, report.html and report.json."""

    def __init__(self, run: Run):
        self.run = run

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self.run.log(step=step, **values)
        if "bits_per_byte" in values:
            self.run.draw_loss()
            write_report(Run.load(self.run.path))  # whose steps may have been fitted to the clock
            self.run.drop_old_checkpoints()  # the best one may have changed

    def samples(self, step: int, samples: Samples) -> None:
        self.run.add_samples(step, samples)

    def close(self) -> None:
        """Do nothing: every line is written already."""


def open_recorders(run: Run, world: World, resumed_at: int | None) -> list[Recorder]:
    """Return the run's recorders; the list is empty on all processes but the first."""
    if not world.is_first:
        return []
    events = [Events(run.path / "tensorboard", resumed_at)] if run.train.tensorboard else []
    return [Files(run), *events]
