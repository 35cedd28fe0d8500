"""TensorBoard events of a run: `--set tensorboard=true`, then `tensorboard --logdir runs`.

>>> events = Events(Path("runs/mine/tensorboard"))                   # doctest: +SKIP
>>> events.scalars(10, {"loss": 3.2, "rate": 0.001})                 # doctest: +SKIP
>>> events.samples(250, [("The cat", " sat.")])                      # doctest: +SKIP
>>> events.close()                                                   # doctest: +SKIP
"""

from pathlib import Path

from gptcore.checks import UserError


class Events:
    """A new event file in `folder`, for a run that goes on after `resume_step`, or that begins.

    Readers drop what earlier files say of the steps from there on, for they are done again."""

    def __init__(self, folder: Path, resume_step: int | None = None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "tensorboard=true needs the package tensorboard: pip install tensorboard, or "
                "leave the setting out"
            ) from None
        # Told at the beginning too: readers take no notice of the first such mark in a folder.
        first = 0 if resume_step is None else resume_step + 1
        self.writer = SummaryWriter(str(folder), purge_step=first)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # what was logged is there, however the run ends

    def samples(self, step: int, samples: list[tuple[str, str]]) -> None:
        # TensorBoard renders Markdown; indented, a text is shown as it is.
        texts = [f"{prompt}{text}".replace("\n", "\n    ") for prompt, text in samples]
        self.writer.add_text("samples", "\n\n---\n\n".join(f"    {t}" for t in texts), step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
