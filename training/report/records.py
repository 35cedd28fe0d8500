"""The records of a run while it trains: metrics, samples, the drawn loss, TensorBoard's events.

>>> records = Records(run, World())                                  # doctest: +SKIP
>>> records.figures(10, {"loss": 2.5})                               # doctest: +SKIP
>>> records.evaluation(250, {"bits_per_byte": 1.2}, [("The cat", " sat.")])  # doctest: +SKIP
"""

from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.system.files import new_file
from training.machine.processes import World
from training.report.history import History
from training.report.report import write_report
from training.run.directory import Run, Samples


class Records:
    """Writes down what a run measures; on all processes but the first it does nothing.

    `resumed_at`: the step from which a run goes on. Raises UserError if TensorBoard is missing.
    """

    def __init__(self, run: Run, world: World, resumed_at: int | None = None):
        self.run, self.is_kept = run, world.is_first
        has_events = run.train.tensorboard and world.is_first
        self.events = open_events(run.path / "tensorboard", resumed_at) if has_events else None

    def figures(self, step: int, values: dict[str, float]) -> None:
        if self.is_kept:
            self.run.log(step=step, **values)
        if self.events:
            for name, value in values.items():
                self.events.add_scalar(name, value, step)
            self.events.flush()  # keep the values even if the run is killed

    def evaluation(self, step: int, measured: dict[str, float], samples: Samples) -> None:
        """Write the figures of the held-out text and the samples, and what is made of them."""
        if not self.is_kept:
            return
        self.run.add_samples(step, samples)  # first: with its figures an evaluation is done
        if self.events:
            # TensorBoard renders Markdown, which shows indented text unchanged.
            texts = [f"    {prompt}{text}".replace("\n", "\n    ") for prompt, text in samples]
            self.events.add_text("samples", "\n\n---\n\n".join(texts), step)
        self.figures(step, measured)
        run = Run.load(self.run.path)  # whose steps may have been fitted to the clock
        draw_loss(History(run))
        write_report(run)
        self.run.drop_old_checkpoints()  # the best one may have changed

    def close(self) -> None:
        if self.events:
            self.events.close()


def open_events(folder: Path, resumed_at: int | None) -> Any:
    """Return the writer of a new event file.

    TensorBoard discards later steps in earlier files, because a resumed run repeats them.
    Raises UserError if the package tensorboard is missing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "tensorboard=true needs the package tensorboard: pip install tensorboard, or "
            "leave the setting out"
        ) from None
    # A new run sets it, too, because readers ignore the first purge_step in a folder.
    first = 0 if resumed_at is None else resumed_at + 1
    return SummaryWriter(str(folder), purge_step=first)


def draw_loss(history: History) -> None:
    """Write loss.png: the loss of the training batches and of unseen text by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5))
    plot = figure.subplots()
    plot.set(xlabel="step", ylabel="loss (bits per byte)")
    if losses := history.curve("loss"):
        smoothed = ", labels smoothed" if history.run.train.label_smoothing else ""
        label = f"training batch{smoothed}"
        plot.plot(losses["step"], losses["y"], color="#9bb8d3", label=label)
    if bits := history.curve("bits_per_byte"):
        plot.plot(bits["step"], bits["y"], color="#c0504d", marker="o", label="unseen text")
    if plot.lines:
        plot.legend()
    with new_file(history.run.path / "loss.png") as temporary:
        figure.savefig(temporary, dpi=120, format="png")
