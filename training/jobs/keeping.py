"""Mixes the weights that a training began with into those that it ended with.

What the training made the model forget comes back, and what it taught stays (WiSE-FT, arXiv
2109.01903).

>>> keep_before(train(run, task, initial), run, task, initial)           # doctest: +SKIP
"""

import math
from typing import Any

from gptcore.nn import build_model
from gptcore.nn.checkpoint import Tensors, load_weights, save_checkpoint
from training.report.report import write_report
from training.run.directory import Run, write_json
from training.tasks.language import LanguageModelling

MOST_COST = 0.03  # nats a token by which mixing may raise the held-out loss


def is_kept(run: Run) -> bool:
    """Return whether a run is complete, and its weights are mixed if they are to be."""
    summary = run.summary()
    return bool(summary) and (not run.train.keep or "kept" in summary)


def keep_before(
    summary: dict[str, Any] | None,
    run: Run,
    task: LanguageModelling,
    before: Tensors | None,
    most_cost: float = math.inf,
) -> dict[str, Any] | None:
    """Mix the share `keep` of the weights `before` into a complete run's; return its new summary.

    Nothing is mixed if the run was paused (`summary` is None), or if the loss on held-out text
    would rise by more than `most_cost` nats a token.
    """
    share = run.train.keep
    if summary is None or not share or before is None:
        return summary
    run = Run.load(run.path)  # with the steps that were fitted to the clock
    best, steps = run.best_checkpoint(), run.train.steps
    if "kept" in best.facts:  # mixed, then interrupted
        share = 0.0
    weights = {name: own.lerp(before[name].to(own), share) for name, own in best.model.items()}
    model = build_model(run.model).eval()
    load_weights(model, weights, run.path)
    measured = task.evaluate(model)
    unmixed = run.evaluations().get(best.facts["step"], {})
    cost = measured["val_loss"] - unmixed.get("val_loss", math.inf)
    is_worth_it = cost <= most_cost
    if is_worth_it:
        said = (
            f"these weights are mixed with {run.train.keep:g} of those before the training, so "
            f"that less is forgotten: {measured['bits_per_byte']:.4f} bits/byte on held-out text"
        )
        summary = run.summary() | measured | {"kept": run.train.keep}
    else:
        said = (
            f"the weights before the training are not mixed in: {run.train.keep:g} of them would "
            f"add {cost:.2f} to the held-out loss"
        )
        summary = run.summary() | {"kept": 0.0}
    if task.world.is_first:
        print(said)
        if is_worth_it:
            facts = best.facts | {"step": steps, "kept": run.train.keep}
            save_checkpoint(run.checkpoints / f"step-{steps}", weights, best.state, facts)
            run.log(step=steps, **measured)
        write_json(run.path / "summary.json", summary)
        write_report(run)
    return summary
