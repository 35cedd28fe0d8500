"""What a run has left behind, as far as it has come: its metrics by step, tokens and time.

>>> history = History(Run.load("runs/mine"))                         # doctest: +SKIP
>>> history.curve("bits_per_byte")                                   # doctest: +SKIP
{'step': [250.0, 500.0], 'tokens': [2048000.0, 4096000.0], 'y': [1.21, 1.08]}
"""

import math
import re
from typing import Any

import numpy as np

from gptcore.checks import UserError
from gptcore.facts import as_json
from training.run.directory import Run

N_EARLIER = 4  # runs beside a run's own, the newest
MAX_LINES = 5_000  # of one metrics.jsonl; of a longer one every few lines are read
MAX_POINTS = 300  # of one curve
MAX_SAMPLES = 40  # steps of which samples are shown
AXES = {"step": "step", "tokens": "tokens", "seconds": "time"}


class History:
    """A run with its metrics and its summary, however far it has come."""

    def __init__(self, run: Run):
        self.run = run
        self.name = run.path.resolve().name
        self.lines = run.metrics(MAX_LINES)
        self.summary = run.summary()
        self.axes = {axis: self.axis(axis) for axis in AXES}

    def column(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """The indices of the lines that have a finite `key`, and its values there."""
        values = np.array([line.get(key) for line in self.lines], dtype=float)  # None: NaN
        indices = np.flatnonzero(np.isfinite(values))
        return indices, values[indices]

    def axis(self, name: str) -> np.ndarray | None:
        """A position on the axis for each line; None where the run did not measure it."""
        steps = np.array([line["step"] for line in self.lines], dtype=float)
        known, values = self.column(name)
        if len(known):
            return np.interp(steps, steps[known], values)
        if name == "tokens" and self.tokens_per_step:
            return steps * self.tokens_per_step
        return None

    @property
    def tokens_per_step(self) -> float:
        """For metrics without tokens; 0.0 for pairs of sentences, whose lengths differ."""
        if is_number(self.summary.get("tokens")) and self.summary.get("steps"):
            return self.summary["tokens"] / self.summary["steps"]
        if hasattr(self.run.model, "source_vocab_size"):
            return 0.0
        return float(self.run.train.batch_size * self.run.model.block_size)

    @property
    def step(self) -> int:
        return max((line["step"] for line in self.lines), default=0)

    @property
    def settings(self) -> dict[str, Any]:
        parts = self.run.model.to_dict(), self.run.train.to_dict(), as_json(self.run.data)
        return {key: value for part in parts for key, value in part.items()}

    def curve(self, key: str) -> dict[str, list[float]] | None:
        """A metric by each axis; None if there is none. Of many values `y` has the means of
        equal parts, and `low` and `high` their ranges."""
        indices, values = self.column(key)
        if not len(indices):
            return None
        by_axis = {name: a[indices] for name, a in self.axes.items() if a is not None}
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

    def end(self, axis: str) -> float | None:
        positions = self.axes[axis]
        return float(positions[-1]) if positions is not None and len(positions) else None


def is_number(value: Any) -> bool:
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and math.isfinite(value)


def read_samples(run: Run) -> list[tuple[int, list[tuple[str, str]]]]:
    """(step, [(prompt, text)]) of samples.md."""
    sections = []
    for step, body in run.samples():
        quotes = [quote[2:].replace("\n> ", "\n") for quote in body.strip("\n").split("\n\n")]
        matches = [re.fullmatch(r"(?s)\*\*(.*?)\*\* ?(.*)", quote) for quote in quotes]
        sections.append((step, [(match[1], match[2]) for match in matches if match]))
    return [sections[i] for i in spread(len(sections), MAX_SAMPLES)]


def spread(n: int, wanted: int) -> list[int]:
    """At most `wanted` of the indices 0..n-1, evenly, the last one among them."""
    every = max(1, -(-n // wanted))
    return list(range(n - 1, -1, -every))[::-1]


def earlier(run: Run) -> list[Run]:
    """The newest finished runs beside this one on the same data, the newest first."""
    found = []
    for summary in run.path.resolve().parent.glob("*/summary.json"):
        try:
            other = Run.load(summary.parent)
        except UserError:
            continue  # of another version, or damaged: no reason to fail this run
        if other.path != run.path.resolve() and data_key(other) == data_key(run):
            found.append((summary.stat().st_mtime, other))
    return [other for _, other in sorted(found, key=lambda pair: -pair[0])[:N_EARLIER]]


def data_key(run: Run) -> str:
    return run.data.corpus_sha256 or run.data.source
