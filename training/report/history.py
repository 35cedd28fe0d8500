"""The metrics of a finished or unfinished run, by step, tokens and time.

>>> history = History(Run.load("runs/mine"))                         # doctest: +SKIP
>>> history.curve("bits_per_byte")                                   # doctest: +SKIP
{'step': [250.0, 500.0], 'tokens': [2048000.0, 4096000.0], 'y': [1.21, 1.08]}
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from gptcore.checks import UserError
from gptcore.system.files import step_of
from gptcore.typed_json import as_json
from training.run.directory import Run
from training.run.facts import RunData

N_EARLIER = 4  # earlier runs shown beside a run
MAX_LINES = 5_000  # lines read from metrics.jsonl; of a longer file, only every n-th line
MAX_POINTS = 300  # points per curve
AXES = {"step": "step", "tokens": "tokens read", "seconds": "time"}
NATS = ("loss", "train_loss")  # logged in nats per token, and shown in bits per byte


class History:
    """The metrics and the summary, if any, of a run."""

    def __init__(self, run: Run):
        self.run = run
        self.name = run.path.resolve().name
        # Of the training alone: what a mean with the weights before is worth, keeping.py adds.
        logged, telling = run.metrics(MAX_LINES), run.data.telling
        self.bits_per_nat = bits_per_nat(run.data, logged)
        self.lines = [telling(line) for line in logged if "kept" not in line]
        self.summary = telling(run.summary())

    def column(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps that have a finite `key`, and its values."""
        values = np.array([line.get(key) for line in self.lines], dtype=float)  # None: NaN
        steps = np.array([line["step"] for line in self.lines], dtype=int)
        return steps[np.isfinite(values)], values[np.isfinite(values)]

    @property
    def step(self) -> int:
        """The last step: the last one logged, or the later one at which the run was stopped."""
        return max(self.lines[-1]["step"] if self.lines else 0, self.taken or 0)

    @property
    def is_at_end(self) -> bool:
        return self.step == self.run.train.steps

    @property
    def taken(self) -> int | None:
        """The step whose weights are taken; None before the first checkpoint."""
        return next(map(step_of, self.run.candidates()), None)

    @property
    def reached(self) -> dict[str, float]:
        """The evaluation of the weights that are taken, its losses in bits per byte.

        A run that was stopped between two evaluations has that of the earlier one.
        """
        taken = self.taken
        measured = [m for n, m in self.run.evaluations().items() if taken is None or n <= taken]
        return self.telling(measured[-1] if measured else {})

    def telling(self, measured: dict[str, float]) -> dict[str, float]:
        """Return the figures of an evaluation that are shown, losses in bits per byte."""
        shown = self.run.data.telling(measured)
        return {key: self.in_bits(key, value) for key, value in shown.items()}

    def in_bits(self, key: str, values: Any) -> Any:
        """Return the values of a metric as they are shown: losses in bits per byte."""
        return values * self.bits_per_nat if key in NATS else values

    @property
    def settings(self) -> dict[str, Any]:
        parts = self.run.model.to_dict(), self.run.train.to_dict(), as_json(self.run.data)
        return {key: value for part in parts for key, value in part.items()}

    def curve(self, key: str) -> dict[str, list[float]] | None:
        """Return a metric as lists: `y` and a position on each axis; None if it was not recorded.

        More than MAX_POINTS values are grouped: `y` is the mean of each group, and `low` and
        `high` are its minimum and maximum.
        """
        steps, values = self.column(key)
        values = self.in_bits(key, values)
        if not np.isfinite(values).any():
            return None
        known = {axis: self.column(axis) for axis in AXES}
        by_axis = {axis: np.interp(steps, *found) for axis, found in known.items() if len(found[0])}
        if len(values) <= MAX_POINTS:
            curve = by_axis | {"y": values}
        else:
            parts = np.array_split(values, MAX_POINTS)
            ends = np.cumsum([len(part) for part in parts]) - 1
            curve = {name: a[ends] for name, a in by_axis.items()}
            for name, measure in (("y", np.mean), ("low", np.min), ("high", np.max)):
                curve[name] = np.array([measure(part) for part in parts])
        return {name: [float(f"{v:.6g}") for v in a] for name, a in curve.items()}

    def last(self, key: str) -> float | None:
        _, values = self.column(key)
        return float(values[-1]) if len(values) else None


def bits_per_nat(data: RunData, logged: Iterable[dict[str, Any]]) -> float:
    """Return by what a loss in nats per token is multiplied to be bits per byte; NaN if unknown.

    The training text is taken to have as many bytes to a token as the held-out text, whose
    tokens are counted before it is measured (of a run begun before they were, those of all text
    are). The page reckons likewise (gptcore/page/train/progress.py).
    """
    for line in logged:
        if line.get("val_loss", 0) > 0:
            return float(line["bits_per_byte"] / line["val_loss"])
    counts = data.held_out_tokens, data.held_out_bytes
    n_tokens, n_bytes = counts if data.held_out_bytes else (data.n_tokens, data.n_bytes)
    return n_tokens / (n_bytes * math.log(2)) if n_tokens and n_bytes else math.nan


def spread(n: int, wanted: int) -> list[int]:
    """Return at most `wanted` evenly spaced indices of 0..n-1, including the last one."""
    every = max(1, -(-n // wanted))
    return list(range(n - 1, -1, -every))[::-1]


def earlier(run: Run) -> list[Run]:
    """Return the newest finished runs on the same data in the same folder, newest first."""
    found = []
    for summary in run.path.resolve().parent.glob("*/summary.json"):
        try:
            time, other = summary.stat().st_mtime, Run.load(summary.parent)
        except (UserError, OSError):
            continue  # another version, damaged or just deleted, which must not stop this run
        if other.path != run.path.resolve() and data_key(other) == data_key(run):
            found.append((time, other))
    return [other for _, other in sorted(found, key=lambda pair: -pair[0])[:N_EARLIER]]


def data_key(run: Run) -> str:
    return run.data.corpus_sha256 or run.data.source
