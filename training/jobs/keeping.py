"""Trains, and mixes the weights that the training began with into those that it ended with.

What the training made the model forget comes back, and what it taught stays (WiSE-FT, arXiv
2109.01903).

>>> summary = train_and_keep(run, task, initial)                     # doctest: +SKIP
"""

import math
from typing import Any

from gptcore.checks import UserError
from gptcore.nn.checkpoint import Checkpoint, Tensors, save_checkpoint
from gptcore.system.files import write_json
from training.loop import told, train
from training.machine.devices import autocast
from training.machine.progress import waiting
from training.report.history import History, bits_per_nat
from training.report.report import write_report
from training.run.base import first_weights
from training.run.directory import Run, Samples
from training.state import State, fresh_state
from training.tasks.language import LanguageModelling

# Nats per token by which mixing may raise the loss of each kind of text. Answers that are known by
# heart fail long before held-out text would tell (docs/log.md).
MOST_COST = {"unseen": 0.03, "training": 0.003}
SHARES = (1.0, 0.5, 0.25)  # of `keep`: less is mixed in where all of it would cost too much


def train_and_keep(
    run: Run, task: LanguageModelling, initial: Tensors | None = None, resume: bool = False
) -> dict[str, Any] | None:
    """Train, mix in the initial weights, and return the summary; None if the run was paused.

    To resume a run that was stopped between the two is to mix. For the arguments see train.
    """
    is_trained = resume and run.is_complete and not run.is_settled
    summary = run.summary() if is_trained else train(run, task, initial, resume)
    return keep_before(summary, run, task, initial)


def keep_before(
    summary: dict[str, Any] | None,
    run: Run,
    task: LanguageModelling,
    before: Tensors | None = None,
) -> dict[str, Any] | None:
    """Mix the share `keep` of the initial weights into a complete run's; return its new summary.

    `before`: the initial weights, if they are at hand. Nothing is mixed if the run was paused
    (`summary` is None). A fine-tuning mixes less, or nothing, if the loss would rise by more than
    MOST_COST: on unseen text, or on the training text if few tokens are held out. A recipe's
    stage mixes what the recipe says. Raises UserError if the weights are missing or changed.
    """
    keep = run.train.keep
    if summary is None or not keep:
        return summary
    run = Run.load(run.path)  # with the steps that were fitted to the clock
    best = run.best_checkpoint()
    judge = "training" if run.data.few_held_out else "unseen"
    most = MOST_COST[judge] if "init" in run.options else math.inf
    weights, kept = best.model, best.facts.get("kept", 0.0)
    with waiting("mixing in the weights before the training"):
        state, measured = measured_again(run, task, weights)
        if not kept:  # else they are mixed, and the command was stopped before it said so
            before = before or first_weights(run)
            if before is None:
                raise UserError(
                    f"{run.path} has keep={keep:g}, but does not name the weights that it began "
                    f"with: train it again"
                )
            unmixed = measured
            for share in (keep * part for part in SHARES):
                mixed = {n: own.lerp(before[n].to(own), share) for n, own in weights.items()}
                state, measured = measured_again(run, task, mixed)
                cost = risen(run, unmixed, measured)
                if cost <= most:
                    weights, kept = mixed, share
                    break
    model: Any = state.model
    with waiting("writing samples"), autocast(state.device, state.dtype):
        samples = task.samples(model)
    if task.world.is_first:
        if kept:
            settle(run, best, weights, measured, kept, samples)
        else:
            bits = bits_per_nat(run.data, [measured])
            print(
                f"the weights are the new ones alone. Some of those before the training, mixed in, "
                f"would bring back what the model forgot, but even {share:.0%} of them would raise "
                f"the loss of the {judge} text by {bits * cost:.3f} bits per byte, and "
                f"{bits * most:.3f} is the most"
            )
            write_json(run.path / "summary.json", run.summary() | {"kept": 0.0})
            write_report(run)
    task.world.wait()
    return run.summary()


def measured_again(
    run: Run, task: LanguageModelling, weights: Tensors
) -> tuple[State, dict[str, float]]:
    """Measure weights as the training measures: on its device and in its precision."""
    state = fresh_state(run.model, run.train, task.world, weights)
    model: Any = state.model
    with autocast(state.device, state.dtype):
        return state, task.evaluate(model)


def risen(run: Run, unmixed: dict[str, float], mixed: dict[str, float]) -> float:
    """Return by how many nats per token mixing raises the loss that decides; see MOST_COST."""
    judge = "train_loss" if run.data.few_held_out else "val_loss"
    return mixed[judge] - unmixed[judge]


def settle(
    run: Run,
    best: Checkpoint,
    mixed: Tensors,
    measured: dict[str, float],
    share: float,
    samples: Samples,
) -> None:
    """Save the mixed weights, their metrics, summary and report; print that they are mixed."""
    step = best.facts["step"]
    save_checkpoint(best.path, mixed, best.state, best.facts | {"kept": share})
    run.log(step=step, kept=share, **measured)
    run.add_samples(step, samples)
    write_json(run.path / "summary.json", run.summary() | measured | {"kept": share})
    write_report(run)
    print(
        f"so that the model forgets less of what it knew, its weights are now {1 - share:.0%} the "
        f"new ones and {share:.0%} those before the training: "
        f"{told(History(run).telling(measured))} (--set keep=0 takes the new ones alone)"
    )
