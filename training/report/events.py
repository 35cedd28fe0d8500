"""TensorBoard events of a run: `--set tensorboard=true`, then `tensorboard --logdir runs`.

>>> events = Events(Path("runs/mine/tensorboard"))                   # doctest: +SKIP
>>> events.scalars(10, {"loss": 3.2, "rate": 0.001})                 # doctest: +SKIP
>>> events.samples(250, [("The cat", " sat.")])                      # doctest: +SKIP
>>> events.close()                                                   # doctest: +SKIP
"""

from pathlib import Path

from gptcore.checks import UserError
from training.run.directory import Samples


class Events:
    """A new event file in `folder`, for a run that starts, or that resumes after `resume_step`.

    TensorBoard discards later steps in earlier files, because the resumed run repeats them.
    Raises UserError if the package tensorboard is missing."""

    def __init__(self, folder: Path, resume_step: int | None = None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "tensorboard=true needs the package tensorboard: pip install tensorboard, or "
                "leave the setting out"
            ) from None
        # A new run sets it, too, because readers ignore the first purge_step in a folder.
        first = 0 if resume_step is None else resume_step + 1
        self.writer = SummaryWriter(str(folder), purge_step=first)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # keep the values even if the run is killed

    def samples(self, step: int, samples: Samples) -> None:
        # TensorBoard renders Markdown, which shows indented text unchanged.
        texts = [f"{prompt}{text}".replace("\n", "\n    ") for prompt, text in samples]
        self.writer.add_text("samples", "\n\n---\n\n".join(f"    {t}" for t in texts), step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
