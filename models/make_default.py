"""How models/default was made: python models/make_default.py [--steps N] [--out DIR] [--runs DIR]

Trains the `nano` preset on the project's own dialogues and exports it. The figures of the
model that ships stand in its README.md.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from export.command import main as export
from training.command import main as train

FORMATS = "int8,q8,q4"
SETTINGS = {"batch_size": 16, "micro_batch_size": 16, "learning_rate": 0.015, "eval_every": 500}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "default")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the run is kept")
    options = parser.parse_args()
    settings = SETTINGS | {"steps": options.steps}
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = options.runs / "default"
    is_there = (run / "config.json").exists()
    code = train(
        ["--out", str(run), *(["--resume"] if is_there else ["--preset", "nano", *changes])]
    )
    names = ["--name", "gptcore nano", "--language", "en"]
    code = code or export([str(run), "--out", str(options.out), *names, "--quantize", FORMATS])
    return code or export(["inspect", str(options.out)])


if __name__ == "__main__":
    sys.exit(main())
