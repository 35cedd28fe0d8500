"""Unedited replies of a model in ordinary conversations, for docs/samples.md.

    python benchmarks/behaviour/samples.py models/default [--variant q8] [--out docs/samples.md]
    python benchmarks/behaviour/samples.py models/mine --against models/smollm2 [--count 10]

Holds the conversations of conversations.txt beside it (a line for each thing that the user says,
an empty line between two conversations), each once at temperature 0 and once at 0.7, as the page
would; the first seed is taken, not the best.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

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


BESIDE = """\
# Before and after

The first {count} of [conversations.txt](../benchmarks/behaviour/conversations.txt) with `{other}`
and with `{name}`, unedited, at temperature 0:
`python benchmarks/behaviour/samples.py {folder} --against {other} --count {count} --out {out}`.
"""


class Column(NamedTuple):
    """One way to hold a conversation."""

    title: str
    model: Model
    sampling: Sampling


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--variant", help="variant of the model (the fastest)")
    parser.add_argument("--against", type=Path, help="another folder: both at temperature 0")
    parser.add_argument("--count", type=int, default=20, help="number of conversations, at most")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "samples.md")
    options = parser.parse_args(arguments)
    model = load_model(options.model, variant=options.variant)
    scripts = SCRIPT.read_text(encoding="utf-8").strip().split("\n\n")[: options.count]
    names = {"name": model.bundle.name, "folder": options.model, "count": len(scripts)}
    if options.against:
        header = BESIDE.format(**names, other=options.against, out=options.out)
        other = load_model(options.against)
        greedy = Sampling(temperature=0)
        fixed = [Column(m.bundle.name, m, greedy) for m in (other, model)]
    else:
        header = HEADER.format(**names, variant=model.variant)
        fixed = [Column("temperature 0", model, Sampling(temperature=0))]
    parts = []
    for seed, script in enumerate(scripts):
        drawn = [Column("temperature 0.7", model, Sampling(temperature=0.7, seed=seed))]
        columns = fixed if options.against else fixed + drawn
        parts.append(f"## {seed + 1}\n\n{table(script.splitlines(), columns)}")
    options.out.write_text("\n".join([header, *parts]), encoding="utf-8")
    print(f"wrote {options.out}: {len(scripts)} conversations")
    return 0


def table(user: list[str], columns: list[Column]) -> str:
    """Return a conversation, held once for each column, as a Markdown table."""
    asked = Conversation("sample", user)
    held = [
        [reply.text for reply in converse(asked, answers_of(c.model), c.sampling).replies]
        for c in columns
    ]
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in zip(user, *held)]
    titles = " | ".join(["user", *(c.title for c in columns)])
    return f"| {titles} |\n|{'---|' * (1 + len(columns))}\n" + "".join(lines)


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table; line breaks are kept."""
    for mark in "\\`*_{}[]<>#|~$":
        text = text.replace(mark, f"\\{mark}")
    return text.strip().replace("\n", "<br>")


if __name__ == "__main__":
    sys.exit(main())
