"""How far a run is, read from the files that training writes into its folder.

>>> progress_of(Path("runs/mine"))["step"]                            # doctest: +SKIP
120
"""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gptcore.system.files import list_checkpoints, read_json, remembered, step_of

CONFIG = "config.json"  # of a run; a training writes it when it begins
DRAWN = 300  # points of a curve


def progress_of(run: Path) -> dict[str, Any] | None:
    """Return the curves, samples, findings and the time left of a run; None before it begins.

    All losses are bits per byte.
    """
    try:
        config = read_json(run / CONFIG)
    except OSError:
        return None
    steps = config["train"]["steps"]
    rows, saved = metrics(run / "metrics.jsonl"), list_checkpoints(run / "checkpoints")
    measured = [row for row in rows if "val_loss" in row]
    timed = [row for row in rows if "seconds" in row]
    logged = [row["step"] for row in timed[-1:]]  # a stop may save a later one
    factor = bits_per_nat(config["data"], measured)
    report, is_complete = reported(run / "report.json"), is_settled(run, config["train"])
    told = [] if report["few_held_out"] else measured  # of few tokens a loss says little
    of_weights = [m for m in told if not is_complete or m["step"] == report["taken"]]
    return {
        "path": str(run),
        "step": max([*logged, *map(step_of, saved[:1])], default=0),
        "steps": steps,
        "left_s": seconds_left(config, timed, seconds_since(run, rows, saved)),
        "is_measuring": is_measuring(config["train"], measured, saved),
        "loss": [[row["step"], row["loss"] * factor] for row in rows if "loss" in row],
        # A mean with the weights before the training is no point of its curve.
        "held_out": [[m["step"], m["bits_per_byte"]] for m in told if "kept" not in m],
        "bits_per_byte": of_weights[-1]["bits_per_byte"] if of_weights else None,
        **report,
        "is_chat": config["data"]["chat"],
        "is_saved": bool(saved),
        "is_complete": is_complete,
    }


def is_settled(run: Path, train: dict[str, Any]) -> bool:
    """Return whether a run is complete, with the weights before it mixed in if `keep` is set."""
    summary = remembered(run / "summary.json")
    return bool(summary) and (not train["keep"] or "kept" in summary)


def bits_per_nat(data: dict[str, Any], measured: list[dict[str, Any]]) -> float:
    """Return the bits per byte of a loss of one nat per token.

    The training text is taken to have as many bytes to a token as the held-out text, whose
    tokens are counted before it is measured (of a run begun before they were, those of all text
    are).
    """
    for m in measured:
        if m["val_loss"] > 0:
            return m["bits_per_byte"] / m["val_loss"]
    counted = "held_out" if data.get("held_out_bytes") else "n"
    return data[f"{counted}_tokens"] / (data[f"{counted}_bytes"] * math.log(2))


def reported(path: Path) -> dict[str, Any]:
    """Return what the report says: the step whose weights are taken, samples of it, findings.

    The report comes a moment after the first figures. Until then these may be of few tokens.
    """
    try:
        return {"few_held_out": False} | dict(read_json(path))  # older reports lack it
    except OSError:
        return {"taken": None, "samples": None, "findings": [], "few_held_out": True}


def seconds_left(
    config: dict[str, Any], timed: list[dict[str, Any]], since_s: float
) -> float | None:
    """Return the seconds to the end of a run; None before they can be known.

    `timed`: the logged steps. `since_s`: seconds since the last of them.
    """
    if not timed:
        return None
    first, last, left = timed[0], timed[-1], math.inf
    clock, n_steps = config.get("clock"), config["train"]["steps"]
    if clock:  # the number of steps is not fitted to the time yet
        left, n_steps = clock["budget_s"] - last["seconds"], clock["most_steps"]
    if n_steps:
        if len(timed) < 2:  # the first step may compile, which says nothing of the others
            return None
        step_s = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
        left = min(left, (n_steps - last["step"]) * step_s)
    return max(0.0, left - since_s)


def seconds_since(run: Path, rows: list[dict[str, Any]], saved: list[Path]) -> float:
    """Return how long ago the last step was logged, by the times of the files."""
    if not rows:
        return 0.0
    # After an evaluation the step's own time is that of its checkpoint, which is saved before.
    was_measured = "seconds" not in rows[-1] and saved
    return time.time() - (saved[0] if was_measured else run / "metrics.jsonl").stat().st_mtime


def is_measuring(train: dict[str, Any], measured: list[dict[str, Any]], saved: list[Path]) -> bool:
    """Return whether an evaluation goes on: its step is saved, and its figures are not there."""
    if not saved:
        return False
    step, every = step_of(saved[0]), train["eval_every"]
    left = train["steps"] - step
    is_due = not left or (step % every == 0 and left >= every / 2)  # as in training/loop.py
    return is_due and step not in [row["step"] for row in measured]


def metrics(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations and at most DRAWN of the other lines of metrics.jsonl.

    The page asks each second, so only they are parsed. The last line may not be whole yet.
    """
    lines = path.read_bytes().splitlines() if path.is_file() else []
    whole = [(i, line) for i, line in enumerate(lines) if line.endswith(b"}")]
    measured = [(i, line) for i, line in whole if b'"val_loss"' in line]
    others = [(i, line) for i, line in whole if b'"val_loss"' not in line]
    rows = []
    for _, line in sorted(measured + thinned(others)):
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def thinned(items: list[Any]) -> list[Any]:
    """Return at most DRAWN of the items, the last one among them."""
    every = -(-len(items) // DRAWN) or 1
    return items[::-1][::every][::-1]
