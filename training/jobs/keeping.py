"""Mixes the weights that a training began with into those that it ended with.

What the training made the model forget comes back, and what it taught stays (WiSE-FT, arXiv
2109.01903).

>>> keep_before(train(run, task, initial), run, task, initial)           # doctest: +SKIP
"""

import math
from typing import Any

from gptcore.nn import build_model
from gptcore.nn.checkpoint import Checkpoint, Tensors, load_weights, save_checkpoint
from training.report.recorders import Samples
from training.report.report import write_report
from training.run.directory import Run, write_json
from training.tasks.language import LanguageModelling

MOST_COST = 0.03  # nats a token by which mixing may raise the loss


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

    Nothing is mixed if the run was paused (`summary` is None), or if the loss would rise by more
    than `most_cost` nats a token: on held-out text, or on the training text if few tokens are held
    out.
    """
    share = run.train.keep
    if summary is None or not share or before is None:
        return summary
    run = Run.load(run.path)  # with the steps that were fitted to the clock
    best = run.best_checkpoint()
    if "kept" in best.facts:  # mixed, then interrupted
        share = 0.0
    weights = {name: own.lerp(before[name].to(own), share) for name, own in best.model.items()}
    model = build_model(run.model).eval()
    load_weights(model, weights, run.path)
    measured = task.evaluate(model)
    unmixed = run.evaluations().get(best.facts["step"], {})
    if task.world.is_first:
        judge = "train_loss" if run.data.few_held_out else "val_loss"
        cost = measured[judge] - unmixed.get(judge, math.inf)
        mixed = weights if cost <= most_cost else None
        settle(run, best, mixed, measured, cost, task.samples(model))
    task.world.wait()
    return run.summary()


def settle(
    run: Run,
    best: Checkpoint,
    mixed: Tensors | None,
    measured: dict[str, float],
    cost: float,
    samples: Samples,
) -> None:
    """Write the mixed weights, if they are taken, and the summary and report; say which it is.

    `measured`, `cost`, `samples`: of the mixed weights.
    """
    steps, keep = run.train.steps, run.train.keep
    if mixed is None:
        judge = "training" if run.data.few_held_out else "held-out"
        print(
            f"the weights before the training are not mixed in: {keep:g} of them would add "
            f"{cost:.2f} to the loss of {judge} text"
        )
        changed = {"kept": 0.0}
    else:
        print(
            f"these weights are mixed with {keep:g} of those before the training, so that less is "
            f"forgotten: {measured['bits_per_byte']:.4f} bits/byte on held-out text "
            f"(--set keep=0 mixes none in)"
        )
        facts = best.facts | {"step": steps, "kept": keep}
        save_checkpoint(run.checkpoints / f"step-{steps}", mixed, best.state, facts)
        run.log(step=steps, kept=keep, **measured)
        run.add_samples(steps, samples)
        changed = measured | {"kept": keep}
    write_json(run.path / "summary.json", run.summary() | changed)
    write_report(run)
