"""What a training forgets comes back, and what it teaches stays (WiSE-FT, arXiv 2109.01903).

The result of a complete run is the mean of its own weights and those that it began with.

>>> keep_before(train(run, task, initial), run, task, initial)           # doctest: +SKIP
"""

import math
from typing import Any

from gptcore.nn import build_model
from gptcore.nn.checkpoint import Tensors, load_weights, save_checkpoint
from training.report.report import write_report
from training.run.directory import Run, write_json
from training.tasks.language import LanguageModelling

MOST_COST = 0.03  # nats of a held-out token


def is_kept(run: Run) -> bool:
    """Return whether a run is complete, with the share of the weights before it that it keeps."""
    summary = run.summary()
    return bool(summary) and (not run.train.keep or "kept" in summary)


def keep_before(
    summary: dict[str, Any] | None,
    run: Run,
    task: LanguageModelling,
    before: Tensors | None,
    most_cost: float = math.inf,
) -> dict[str, Any] | None:
    """Mix the share `keep` of the weights before a complete run into its own; the new summary.

    A run that was paused stays as it is; and so does one whose loss on held-out text, in nats a
    token, would rise by more than `most_cost`.
    """
    share = run.train.keep
    if summary is None or not share or before is None:
        return summary
    best, steps = run.best_checkpoint(), run.train.steps
    if "kept" in best.facts:  # mixed, then interrupted
        share = 0.0
    weights = {name: own.lerp(before[name].to(own), share) for name, own in best.model.items()}
    model = build_model(run.model).eval()
    load_weights(model, weights, run.path)
    measured = task.evaluate(model)
    own = run.evaluations().get(best.facts["step"], {})
    cost = measured["val_loss"] - own.get("val_loss", math.inf)
    is_worth_it = cost <= most_cost
    if is_worth_it:
        print(
            f"{run.train.keep:g} of the weights that it began with are kept, so that less is "
            f"forgotten: {measured['bits_per_byte']:.4f} bits/byte on held-out text"
        )
        summary = run.summary() | measured | {"kept": run.train.keep}
    else:
        print(
            f"none of the weights that it began with are kept: {run.train.keep:g} of them would "
            f"add {cost:.2f} to the held-out loss"
        )
        summary = run.summary() | {"kept": 0.0}
    if task.world.is_first:
        if is_worth_it:
            facts = best.facts | {"step": steps, "kept": run.train.keep}
            save_checkpoint(run.checkpoints / f"step-{steps}", weights, best.state, facts)
            run.log(step=steps, **measured)
        write_json(run.path / "summary.json", summary)
        write_report(run)
    return summary
