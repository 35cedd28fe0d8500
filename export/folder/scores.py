"""Writes the part of the model card that has the behaviour suite's scores.

>>> evaluation_table(facts)                                          # doctest: +SKIP
"""

from gptcore.facts import ModelFacts

EVALUATION = """\
## Evaluation

`python -m training evaluate`: short conversations by skill, judged by rules; greedy, and sampled
at temperature 0.7 with {n_seeds} seeds (mean, and the worst seed).{unseen}{further}

| skill | n | greedy | sampled | lowest |
|---|--:|--:|--:|--:|
{skills}
{copies}
"""
COPIES = """
A user tells a fact with values drawn anew, and asks for it: how often the reply has the value, out
of structures of sentences that the training data has, and out of others.

| | n | greedy | sampled |
|---|--:|--:|--:|
{rows}
"""
UNSEEN = """ Conversations of
the suite, and lines nearly like its lines of seven words and more, were left out of its
training."""
FURTHER = """ The rows below
`all` are of other suites, which nobody may train on."""


def evaluation_table(facts: ModelFacts) -> str:
    """Return a table of the behaviour suite's scores, or nothing if it was not run."""
    scores = facts.evaluation
    if not scores or not scores.skills:
        return ""
    lines = [
        f"| {name} | {s.n} | {s.greedy:.1%} | {s.sampled:.1%} | {s.lowest:.1%} |"
        for name, s in scores.skills.items()
    ]
    unseen = UNSEEN if facts.training and facts.training.data.datasets else ""
    further = FURTHER if list(scores.skills)[-1] != "all" else ""
    rows = [
        f"| {name} | {s.n} | {s.greedy:.1%} | {s.sampled:.1%} |"
        for name, s in scores.copies.items()
    ]
    copies = COPIES.format(rows="\n".join(rows)) if rows else ""
    return EVALUATION.format(
        n_seeds=scores.n_seeds,
        unseen=unseen,
        further=further,
        skills="\n".join(lines),
        copies=copies,
    )
