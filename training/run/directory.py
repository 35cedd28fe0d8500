"""The run directory: everything a training run leaves behind.

config.json     the resolved settings: model, training, data, clock, options
tokenizer/      the tokenizer; of a translation, the target's, beside source_tokenizer/
metrics.jsonl   a line for each logged step and each evaluation
loss.png        the curves, redrawn at each evaluation
samples.md      what the model wrote at each evaluation
report.html     all of it in one page, beside earlier runs on the same text
checkpoints/    step-N/, see gptcore.nn.checkpoint; the last few, and the best
summary.json    the result, written at the end
lock            held while a command trains into the folder

>>> run = Run.load("runs/mine")                                      # doctest: +SKIP
"""

import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.facts import as_json, check_format, read_as
from gptcore.system.files import (
    list_checkpoints,
    locked,
    read_json,
    read_sealed,
    sealed,
    step_of,
    write_whole,
)
from gptcore.text.tokenizer import Tokenizer
from training.run.clock import Clock
from training.run.config import TrainConfig
from training.run.facts import FORMAT, RunData, Settings

CONFIG, LOCK = "config.json", "lock"

if TYPE_CHECKING:  # it imports torch, which no command needs that only reads a run's records
    from gptcore.nn.checkpoint import Checkpoint


@dataclass(frozen=True)
class Run:
    """A run directory and its settings."""

    path: Path
    model: ModelConfig
    train: TrainConfig
    data: RunData
    clock: Clock | None = None  # of a plan for a time, until it is fitted
    options: dict[str, str] = field(default_factory=dict)  # further ones it was started with
    # Which checkpoints this process has written, or verified, or found damaged.
    sound: dict[Path, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / "tokenizer")

    @property
    def is_complete(self) -> bool:
        return bool(self.summary())

    def summary(self) -> dict[str, Any]:
        """Empty while there is none; a damaged one is none, and a resume writes it again."""
        try:
            return dict(read_json(self.path / "summary.json"))
        except (OSError, ValueError, TypeError):
            return {}

    def create(self) -> None:
        """Write the settings; what a run without a checkpoint left is dropped."""
        for name in ("metrics.jsonl", "samples.md", "summary.json"):
            (self.path / name).unlink(missing_ok=True)
        self.write_config()

    def write_config(self) -> None:
        settings = Settings(self.model, self.train, self.data, self.clock, self.options)
        write_whole(self.path / CONFIG, sealed(as_json(settings)))

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        """A run that was begun. UserError if there is none, or config.json is not sound."""
        path = Path(path)
        try:
            values = read_sealed(path / CONFIG)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"no training run at {path}: name a folder that training wrote"
            ) from None
        check_format(values, FORMAT, str(path / CONFIG))
        found = read_as(Settings, values, str(path / CONFIG))
        return cls(path, found.model, found.train, found.data, found.clock, found.options)

    def log(self, **values: float) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def metrics(self, limit: float = float("inf")) -> list[dict[str, Any]]:
        """What was logged, by step, without torn lines.

        Of many more lines than `limit`, all evaluations and every few of the others: to read all
        would keep the training waiting."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        every = 1 + len(lines) // limit
        rows = []
        for i, line in enumerate(lines, 1 - len(lines)):  # 0 is the newest
            if line.endswith(b"}") and (i % every == 0 or b"bits_per_byte" in line):
                with suppress(ValueError, RecursionError):
                    rows.append(json.loads(line))
        return sorted((row for row in rows if "step" in row), key=lambda row: row["step"])

    def evaluations(self) -> dict[int, dict[str, float]]:
        """What was measured on the held-out split, by step."""
        lines = [line for line in self.metrics() if "bits_per_byte" in line]
        return {line.pop("step"): line for line in lines}

    def by_goodness(self) -> list[Path]:
        """The checkpoints that have been measured, the best first: of a translation by chrF,
        else by bits per byte. Then the others, the newest first; last those that gave NaN."""
        measured = self.evaluations()

        def badness(path: Path) -> tuple[bool, float]:
            line = measured.get(step_of(path), {})
            figure = -line["chrf"] if "chrf" in line else line.get("bits_per_byte", float("inf"))
            return math.isnan(line.get("bits_per_byte", 0.0)), figure

        return sorted(list_checkpoints(self.checkpoints), key=badness)

    def best_checkpoint(self) -> "Checkpoint":
        """The best sound checkpoint of a complete run, else the newest."""
        if self.is_complete:
            return self.first_sound(self.by_goodness())
        return self.newest_checkpoint()

    def newest_checkpoint(self) -> "Checkpoint":
        return self.first_sound(list_checkpoints(self.checkpoints))

    def first_sound(self, paths: list[Path]) -> "Checkpoint":
        """The first sound one; says what is wrong with those before it."""
        from gptcore.nn.checkpoint import first_sound

        checkpoint, problems = first_sound(paths, self.checkpoints)
        self.sound[checkpoint.path] = True
        for problem in problems:
            print(f"passed over: {problem}")
        return checkpoint

    def is_sound(self, path: Path) -> bool:
        """Whether a checkpoint is whole. It is read once, and not at all if this process wrote it:
        it may have gigabytes."""
        from gptcore.nn.checkpoint import verify_checkpoint

        if path not in self.sound:
            try:
                verify_checkpoint(path)
                self.sound[path] = True
            except UserError:
                self.sound[path] = False
        return self.sound[path]

    def forget_after(self, step: int) -> None:
        """Drop the metrics and samples of steps that a resumed run will do again."""
        lines = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write_whole(self.path / "metrics.jsonl", "".join(lines))
        measured = self.evaluations()
        sections = [f"## Step {n}\n{text}" for n, text in self.samples() if n in measured]
        write_whole(self.path / "samples.md", "".join(sections))

    def samples(self) -> list[tuple[int, str]]:
        """The sections of samples.md by step; read as bytes, as a text may hold any line end."""
        path = self.path / "samples.md"
        text = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
        parts = re.split(r"^## Step (\d+)\n", text, flags=re.MULTILINE)
        return list(zip(map(int, parts[1::2]), parts[2::2]))

    def add_samples(self, step: int, samples: list[tuple[str, str]]) -> None:
        with open(self.path / "samples.md", "a", encoding="utf-8") as file:
            file.write(f"## Step {step}\n\n")
            for prompt, text in samples:
                # quoted line by line: what a model writes never looks like a heading of ours
                quoted = f"**{prompt}** {text}".replace("\n", "\n> ")
                file.write(f"> {quoted}\n\n")

    def drop_old_checkpoints(self) -> None:
        """Keep the newest few sound checkpoints and the best one; drop all others, and what a
        killed process left."""
        newest = filter(self.is_sound, list_checkpoints(self.checkpoints))
        best = filter(self.is_sound, self.by_goodness())
        kept = {*islice(newest, self.train.keep_checkpoints), *islice(best, 1)}
        for folder in set(self.checkpoints.glob("step-*")) - kept:
            shutil.rmtree(folder, ignore_errors=True)

    def draw_loss(self) -> None:
        """loss.png: training loss by step, and bits per byte of the held-out text."""
        from matplotlib.figure import Figure

        metrics = self.metrics()
        steps = [m for m in metrics if "loss" in m]
        evaluations = [m for m in metrics if "bits_per_byte" in m]
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        axes.plot([m["step"] for m in steps], [m["loss"] for m in steps], color="#9bb8d3")
        axes.set(xlabel="step", ylabel="training loss (nats per token)", title=self.path.name)
        right = axes.twinx()
        right.plot(
            [m["step"] for m in evaluations],
            [m["bits_per_byte"] for m in evaluations],
            color="#c0504d",
            marker="o",
        )
        right.set_ylabel("held-out bits per byte", color="#c0504d")
        figure.savefig(self.path / "loss.png", dpi=120)


def begun(path: Path) -> bool:
    """Whether a run is there that can go on, or is complete."""
    return bool(list_checkpoints(path / "checkpoints"))


def check_writable(path: Path) -> None:
    """Refuse a folder that cannot be made, before hours of work whose results would go there."""
    nearest = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise UserError(f"--out {path}: {nearest} is a file: name a folder")
    try:
        with TemporaryDirectory(dir=nearest):
            pass
    except OSError as error:
        reason = f"nothing can be written to {nearest} ({error.strerror})"
        raise UserError(f"--out {path}: {reason}: choose another folder") from None


@contextmanager
def alone_in(path: Path, is_first: bool) -> Iterator[None]:
    """Keep a run directory for this command; of several processes, the first one does it.

    UserError if another command trains into it. A folder that stays empty is removed again.
    """
    if not is_first:
        yield
        return
    check_writable(path)
    lock = path / LOCK
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        with ExitStack() as held:
            try:
                held.enter_context(locked(lock, timeout=0))
            except TimeoutError:
                raise UserError(
                    f"{path} is in use: another command trains into it; wait for its end, or "
                    f"choose another --out"
                ) from None
            yield
    finally:
        if missing and list(path.glob("*")) == [lock]:
            lock.unlink()
            with suppress(OSError):  # a parent may have got other things
                for folder in missing:
                    folder.rmdir()


def check_free(path: Path) -> None:
    """Refuse to start a run where one is, or where none can be written."""
    check_writable(path)
    if begun(path):
        raise UserError(f"{path} holds a run already: add --resume, or choose another --out")


def say_next(run: Path, command: str, summary: dict[str, Any] | None) -> None:
    """What can be done after a training that ended, or was paused."""
    if summary is None:
        print(f"go on: {command} --out {run} --resume")
    else:
        print(f"done; next: python -m export {run} --out models/{run.name}")


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
