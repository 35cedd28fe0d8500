"""The run directory, which holds everything that a training run writes.

config.json     the resolved settings: model, training, data, clock, options
family/         of a model made elsewhere: its tokenizer's files, which the export keeps
adapter/        the best step's adapters (LoRA), as PEFT reads them; written at the end
tokenizer/      the tokenizer; a translator's target tokenizer, with source_tokenizer/ beside it
metrics.jsonl   a line for each logged step and each evaluation
loss.png        the loss curves, redrawn at each evaluation
samples.json    the model's samples of each evaluation; samples.md is the same, to read
report.html     curves and samples on one page, with earlier runs on the same text
report.json     of it, for programs: the step whose weights are taken, its samples, the findings
checkpoints/    step-N/ of the newest few steps and the best; see gptcore.nn.checkpoint
summary.json    the final figures, written at the end
evidence/       step-N/ of steps without a finite loss: the batch, the weights, gradient norms
pairs/          a translator's pairs
cache/          token shards that are fetched from a URL, a few at a time
tensorboard/    events, with tensorboard=true
lock            locked while a command trains into the folder

>>> run = Run.load("runs/mine")                                      # doctest: +SKIP
"""

import json
import math
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.checks import UserError, nearest_beside
from gptcore.system.files import (
    LOCK,
    is_locked,
    list_checkpoints,
    read_json,
    read_sealed,
    sealed,
    step_of,
    write_json,
    write_whole,
)
from gptcore.system.wording import word
from gptcore.text.tokenizer import Tokenizer
from gptcore.typed_json import as_json, check_format, read_as
from training.run.facts import FORMAT, Settings

CONFIG = "config.json"
RECORDS = ("metrics.jsonl", "samples.json", "samples.md", "summary.json")
Samples = list[tuple[str, str]]  # (prompt, continuation)

if TYPE_CHECKING:  # it imports torch, which is slow; commands that only read records do not need it
    from gptcore.nn.checkpoint import Checkpoint


@dataclass(frozen=True)
class Run(Settings):
    """A run directory and its settings."""

    path: Path = field(kw_only=True)
    # Checkpoints that this process wrote or verified (True), or found damaged (False).
    sound: dict[Path, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def row_tokens(self) -> int:
        """Tokens of a training row."""
        return self.train.row_length(self.model.block_size)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / "tokenizer")

    @property
    def is_complete(self) -> bool:
        return bool(self.summary())

    @property
    def is_settled(self) -> bool:
        """Whether it is complete, and weights before it are mixed in if they are to be."""
        summary = self.summary()
        return bool(summary) and (not self.train.keep or "kept" in summary)

    @property
    def is_training(self) -> bool:
        """Whether a command trains into the folder now."""
        return is_locked(self.path / LOCK)

    def summary(self) -> dict[str, Any]:
        """Return summary.json, or {} if it is missing or damaged; a resume writes it again."""
        try:
            return dict(read_json(self.path / "summary.json"))
        except (OSError, ValueError, TypeError):
            return {}

    def create(self) -> None:
        """Write the settings, and delete the records of a run that saved no checkpoint."""
        for name in RECORDS:
            (self.path / name).unlink(missing_ok=True)
        self.write_config()

    def write_config(self) -> None:
        settings = {field.name: getattr(self, field.name) for field in fields(Settings)}
        write_whole(self.path / CONFIG, sealed(as_json(Settings(**settings))))

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        """Open the run at `path`. Raises UserError if there is none or config.json is damaged."""
        path = Path(path)
        if (path / "gptcore.json").exists():
            raise UserError(f"{path} is a model folder: name the run that it was exported from")
        check_not_foreign(path)
        try:
            values = read_sealed(path / CONFIG)
        except (FileNotFoundError, NotADirectoryError):
            if is_locked(path / LOCK):
                raise UserError(
                    f"the training in {path} has just begun: wait for its first checkpoint"
                ) from None
            hint = nearest_beside(path, "runs", "models") or "name a folder that training wrote"
            raise UserError(f"no training run at {path}: {hint}") from None
        check_format(values, FORMAT, str(path / CONFIG))
        found = read_as(Settings, values, str(path / CONFIG))
        return cls(**vars(found), path=path)

    def log(self, **values: float) -> None:
        """Append a line; a value that is not finite is left out, as JSON has no such number."""
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def metrics(self, limit: float = float("inf")) -> list[dict[str, Any]]:
        """Return the logged lines in order of steps, without incomplete lines.

        If there are many more than `limit`, only the evaluations and every n-th of the other
        lines are parsed, so that a report does not delay the training."""
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
        """Return the measures of the held-out split by step."""
        lines = [line for line in self.metrics() if "bits_per_byte" in line]
        return {line.pop("step"): line for line in lines}

    def by_goodness(self) -> list[Path]:
        """Return the checkpoints: evaluated ones first, best first, then the others, newest first.

        The figure is chrF for a translator and bits per byte otherwise. If few tokens are held out,
        none counts as evaluated: the newest have learned most. The mean with the weights before
        (training/jobs/keeping.py) comes first, if there is one.
        """
        measured, by_chance = self.evaluations(), self.data.few_held_out

        def badness(path: Path) -> tuple[bool, float]:
            line = measured.get(step_of(path), {})
            figure = -line["chrf"] if "chrf" in line else line.get("bits_per_byte", math.inf)
            return "kept" not in line, math.inf if by_chance else figure

        return sorted(list_checkpoints(self.checkpoints), key=badness)

    def best_checkpoint(self) -> "Checkpoint":
        """Return the best sound checkpoint of a complete run, otherwise the newest sound one.

        Raises UserError if no checkpoint is sound.
        """
        if not begun(self.path) and self.is_training:
            raise UserError(f"{self.path} is still training: wait for its first checkpoint")
        return self.first_sound(self.candidates())

    def candidates(self) -> list[Path]:
        """Return the checkpoints in the order in which their weights would be taken."""
        return self.by_goodness() if self.is_complete else list_checkpoints(self.checkpoints)

    def newest_checkpoint(self) -> "Checkpoint":
        return self.first_sound(list_checkpoints(self.checkpoints))

    def first_sound(self, paths: list[Path]) -> "Checkpoint":
        """Return the first sound checkpoint, and print what is wrong with those before it.

        Raises UserError if none is sound.
        """
        from gptcore.nn.checkpoint import first_sound

        checkpoint, problems = first_sound(paths, self.checkpoints)
        self.sound[checkpoint.path] = True
        for problem in problems:
            print(f"skipped: {problem}")
        return checkpoint

    def is_sound(self, path: Path) -> bool:
        """Return whether a checkpoint is undamaged.

        It may be gigabytes large, so it is read at most once, and never if this process wrote it.
        """
        from gptcore.nn.checkpoint import verify_checkpoint

        if path not in self.sound:
            try:
                verify_checkpoint(path)
                self.sound[path] = True
            except UserError:
                self.sound[path] = False
        return self.sound[path]

    def forget_after(self, step: int) -> None:
        """Delete the metrics and samples of later steps, which a resumed run repeats.

        The summary, too: it says that a run is complete, and is written again.
        """
        (self.path / "summary.json").unlink(missing_ok=True)
        lines = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write_whole(self.path / "metrics.jsonl", "".join(lines))
        measured = self.evaluations()
        self.write_samples([(n, samples) for n, samples in self.samples() if n in measured])

    def samples(self) -> list[tuple[int, Samples]]:
        """Return the samples, (prompt, text), of each step; [] if they are missing or damaged."""
        try:
            found = read_json(self.path / "samples.json")
            return [(step, [(prompt, text) for prompt, text in each]) for step, each in found]
        except (OSError, ValueError, TypeError):
            return []

    def add_samples(self, step: int, samples: Samples) -> None:
        """Add a step's samples; they replace those from before its weights were mixed."""
        before = [each for each in self.samples() if each[0] != step]
        self.write_samples([*before, (step, samples)])

    def write_samples(self, steps: list[tuple[int, Samples]]) -> None:
        """Write samples.json for programs, and samples.md for people."""
        write_json(self.path / "samples.json", steps)
        lines = []
        for step, samples in steps:
            lines.append(f"## Step {step}\n\n")
            for prompt, text in samples:
                # Each line is quoted, so that no model output looks like one of the headings.
                quoted = f"**{prompt}** {text}".replace("\n", "\n> ")
                lines.append(f"> {quoted}\n\n")
        write_whole(self.path / "samples.md", "".join(lines))

    def drop_old_checkpoints(self) -> None:
        """Delete all checkpoints but the newest few sound ones and the best one.

        This also deletes incomplete folders of a killed process, and no copy of another name.
        """
        newest = filter(self.is_sound, list_checkpoints(self.checkpoints))
        best = filter(self.is_sound, self.by_goodness())
        kept = {*islice(newest, self.train.keep_checkpoints), *islice(best, 1)}
        incomplete = self.checkpoints.glob(".step-*")
        for folder in {*list_checkpoints(self.checkpoints), *incomplete} - kept:
            shutil.rmtree(folder, ignore_errors=True)


def check_not_foreign(path: Path) -> None:
    """Raise UserError if a folder is in Hugging Face's format, which another command imports."""
    try:
        is_foreign = "model_type" in read_json(path / CONFIG)
    except (OSError, UserError, TypeError):
        return  # Run.load says what is wrong
    if is_foreign:
        raise UserError(
            f"{path} is in Hugging Face's format: import it first, `python -m export "
            f"--from-hf {word(path)} --out {word(f'models/{path.resolve().name}')}`, and name that "
            f"folder"
        )


def begun(path: Path) -> bool:
    """Return whether the folder holds a run with at least one checkpoint."""
    return bool(list_checkpoints(path / "checkpoints"))


def runs_in(folder: Path, most: int = 3) -> list[Path]:
    """Return the runs in a folder that can be resumed, the newest first."""
    found = [path for path in folder.glob("*") if (path / CONFIG).is_file() and begun(path)]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:most]


def say_next(run: Path, command: str, summary: dict[str, Any] | None) -> None:
    """Print the next command after a training that ended or was paused (`summary` is None)."""
    if summary is None:
        print(f"to continue: {command} --out {word(run)} --resume")
    else:
        print(f"done; next: {export_command(run)}")


def export_command(run: Path) -> str:
    return f"python -m export {word(run)} --out {word(f'models/{run.resolve().name}')}"
