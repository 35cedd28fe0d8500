"""Unedited replies of a model in ordinary conversations, for docs/samples.md.

    python benchmarks/behaviour/samples.py models/default [--variant q8] [--out docs/samples.md]

Holds the conversations of conversations.txt beside it (a line for each thing that the user says,
an empty line between two conversations), each once at temperature 0 and once at 0.7, as the page
would; the first seed is taken, not the best.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gptcore.engine.generate import Model
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model
from training.evaluation.behaviour import Conversation, answers_of, converse

SCRIPT = Path(__file__).with_name("conversations.txt")
HEADER = """\
# What it says

The conversations of [conversations.txt](../benchmarks/behaviour/conversations.txt) with {name},
`{variant}`, unedited: `python benchmarks/behaviour/samples.py {folder} --variant {variant}`.
Whoever wrote the user's side had seen neither the model nor its training data. On the left of
each row what the user said, then the reply at temperature 0, and that at 0.7 with the first seed.
The two are conversations of their own: each reply follows those above it in its column.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--variant", help="variant of the model (the fastest)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "samples.md")
    options = parser.parse_args(arguments)
    model = load_model(options.model, variant=options.variant)
    header = HEADER.format(name=model.bundle.name, variant=model.variant, folder=options.model)
    scripts = SCRIPT.read_text(encoding="utf-8").strip().split("\n\n")
    tables = [table(model, script.splitlines(), seed) for seed, script in enumerate(scripts)]
    parts = [f"## {number}\n\n{text}" for number, text in enumerate(tables, 1)]
    options.out.write_text("\n".join([header, *parts]), encoding="utf-8")
    print(f"wrote {options.out}: {len(scripts)} conversations")
    return 0


def table(model: Model, user: list[str], seed: int) -> str:
    """Return a conversation, held twice, as a Markdown table."""
    asked, answer = Conversation("sample", user), answers_of(model)
    greedy, sampled = (
        [reply.text for reply in converse(asked, answer, sampling).replies]
        for sampling in (Sampling(temperature=0), Sampling(temperature=0.7, seed=seed))
    )
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in zip(user, greedy, sampled)]
    return "| user | temperature 0 | temperature 0.7 |\n|---|---|---|\n" + "".join(lines)


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table; line breaks are kept."""
    for mark in "\\`*_{}[]<>#|~$":
        text = text.replace(mark, f"\\{mark}")
    return text.strip().replace("\n", "<br>")


if __name__ == "__main__":
    sys.exit(main())
