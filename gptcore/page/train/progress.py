"""How far a run is, read from the files that training writes into its folder.

>>> progress_of(Path("runs/mine"))["step"]                            # doctest: +SKIP
120
"""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from gptcore.system.files import list_checkpoints, read_json

DRAWN = 300  # points of a curve
SAMPLES = 3


def progress_of(run: Path) -> dict[str, Any] | None:
    """Return the curves, the last samples and the time left of a run; None before it begins.

    All losses have one unit: bits per byte from the first evaluation on, nats per token before.
    """
    try:
        config = read_json(run / "config.json")
    except OSError:
        return None
    steps = config["train"]["steps"]
    rows = metrics(run / "metrics.jsonl")
    measured = [row for row in rows if "val_loss" in row]
    # The training text is taken to have as many bytes to a token as the held-out text.
    factor = next((m["bits_per_byte"] / m["val_loss"] for m in measured if m["val_loss"] > 0), 0)
    losses = [[row["step"], row["loss"] * (factor or 1)] for row in rows if "loss" in row]
    held_out = [[m["step"], m["bits_per_byte"] if factor else m["val_loss"]] for m in measured]
    timed = [row for row in rows if "seconds" in row]
    step, seconds = (timed[-1]["step"], timed[-1]["seconds"]) if timed else (0, 0.0)
    return {
        "path": str(run),
        "step": step,
        "steps": steps,
        "left_s": (steps - step) * seconds / step if step else None,
        "unit": "bits" if factor else "nats",
        "loss": thinned(losses),
        "held_out": held_out,
        "samples": samples(run / "samples.md"),
        "is_chat": config["data"]["chat"],
        "is_saved": bool(list_checkpoints(run / "checkpoints")),
        "is_complete": (run / "summary.json").is_file(),
    }


def metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl; the last one may not be whole yet."""
    rows = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def thinned(points: list[list[float]]) -> list[list[float]]:
    """Return at most DRAWN of the points, the last one among them."""
    every = -(-len(points) // DRAWN) or 1
    return points[::-1][::every][::-1]


def samples(path: Path) -> list[str]:
    """Return the samples of the last evaluation."""
    text = path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""
    last = re.split(r"^## Step \d+\n", text, flags=re.MULTILINE)[-1]
    quoted = [part.strip() for part in re.split(r"\n\n(?=> \*\*)", last) if part.strip()]
    return [re.sub(r"^> ?", "", part, flags=re.MULTILINE) for part in quoted[:SAMPLES]]
