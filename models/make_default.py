"""Makes a model like models/default: python models/make_default.py --recipe gpu [--data-dir DIR]

Trains a recipe (the same command goes on where it stopped), exports and verifies the model, asks
it the behaviour suite, and keeps what is small enough for a plain `git push`. The model that ships
is of the recipe `gpu`, in more pieces, which its README.md lists with its figures; without
--recipe, `default` makes a smaller one, on two cores.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from export.__main__ import main as export
from training.__main__ import main as train
from training.jobs.stages import read_recipe

VARIANT = "q8"  # the smaller file that loses least, which `export ship` will keep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="default", help="its name, or a TOML file")
    parser.add_argument("--name", default="gptcore chat", help="of the model, for its card")
    parser.add_argument("--data-dir", help="where datasets are; see python -m training datasets")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "default", help="work is here")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "like-default")
    options = parser.parse_args()
    whole, scores = options.runs / "whole", options.runs / "scores.json"
    last = options.runs / read_recipe(options.recipe)[-1].name
    data = ["--data-dir", options.data_dir] if options.data_dir else []
    name = ["--name", options.name, "--language", "en", "--license", "mit"]
    steps = [
        (train, ["recipe", options.recipe, "--out", options.runs, *data]),
        (export, [last, "--out", whole, *name, "--quantize", f"int8,{VARIANT}"]),
        (export, ["inspect", whole]),
        (train, ["evaluate", whole, "--variant", VARIANT, "--out", scores]),
        (export, ["ship", whole, "--out", options.out, "--scores", scores]),
    ]
    return next((code for run, words in steps if (code := run([str(w) for w in words]))), 0)


if __name__ == "__main__":
    sys.exit(main())
