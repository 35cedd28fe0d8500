"""The training loop, a visible `for`.

    >>> run = Run.load("runs/mine")                                      # doctest: +SKIP
    >>> train(run, LanguageModelling(run, shards))                       # doctest: +SKIP

Each step is a pure function of the checkpoint before it and of (seed, step): batches are
not drawn from a loader but computed, so a resumed run equals an uninterrupted one bit for bit.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from gptcore.checks import UserError
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import load_checkpoint, load_weights, newest_checkpoint, save_checkpoint
from training.batches import IGNORED
from training.clock import is_due, replanned
from training.config import TrainConfig
from training.machine import (
    Interrupts,
    autocast,
    is_terminal,
    keep_freed_memory,
    pick_device,
    pick_dtype,
)
from training.optimizer import (
    build_optimizers,
    load_optimizer_tensors,
    optimizer_tensors,
    rate_factor,
    set_rate,
)
from training.run import Run, write_json

Optimizers = list[torch.optim.Optimizer]


class Task(Protocol):
    """What is learned: training.language.LanguageModelling, training.translation.Translation."""

    command: str  # that trains it
    steps_per_epoch: float
    tokens_per_step: float

    def save(self, folder: Path) -> None:
        """Write what the run directory must hold on top of settings: tokenizers, for one."""

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """The model's inputs and, last, the targets (B, T), IGNORED where there is no loss."""

    def logits(self, model: nn.Module, *inputs: Tensor) -> Tensor:
        """(B, T, V)."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measures of the held-out split; "val_loss" and "bits_per_byte" are among them."""

    def samples(self, model: nn.Module) -> list[tuple[str, str]]:
        """A few prompts and what the model makes of them."""


def train(
    run: Run,
    task: Task,
    initial: dict[str, Tensor] | None = None,
    resume: bool = False,
    stop_at: int | None = None,
) -> dict[str, Any] | None:
    """Train to the end and return the summary, or None if paused before.

    `initial`: weights to start from, when fine-tuning. `stop_at`: pause after this step, as
    Ctrl-C does. A non-finite loss or gradient is a UserError, raised before the update.
    """
    config = run.train
    device = pick_device()
    dtype = pick_dtype(config.dtype, device)
    keep_freed_memory()
    torch.manual_seed(config.seed)
    model = build_model(run.model).to(device).train()
    if initial:
        load_weights(model, initial, "--init")
    optimizers = build_optimizers(model, config)
    if resume:
        first = restore(run, model, optimizers)
    else:
        first = 0
        task.save(run.path)  # not before all that can be wrong has been seen
        run.create()

    precision = str(dtype).removeprefix("torch.")
    print(
        f"{count_parameters(model):,} parameters on {device} in {precision}; "
        f"{task.tokens_per_step:,.0f} tokens a step, {task.steps_per_epoch:.1f} steps an epoch"
    )
    earlier_s = max((m.get("seconds", 0.0) for m in run.metrics()), default=0.0)
    started = time.perf_counter()
    often = 0.2 if is_terminal() else 30.0
    bar = tqdm(initial=first, total=config.steps, unit="step", mininterval=often)
    with Interrupts() as interrupts, bar:
        step, evaluation_s, evaluations = first, 0.0, 0
        while step < config.steps:
            session_s = time.perf_counter() - started
            left_s = run.data.get("budget_s", math.inf) - earlier_s - session_s
            if is_due(config, step, left_s, run.data.get("budget_s")):
                step_s = (session_s - evaluation_s) / max(step - first, 1)
                each_s = evaluation_s / max(evaluations, 1)
                config = replanned(config, step, step_s, each_s, left_s)
                data = {key: value for key, value in run.data.items() if key != "budget_s"}
                run = replace(run, train=config, data=data)
                run.write_settings()
                bar.total = config.steps
            rate = config.learning_rate * rate_factor(
                step, config.steps, config.warmup_steps, config.decay_share
            )
            set_rate(optimizers, rate)
            batch = task.batch(step)
            with autocast(device, dtype):
                loss = accumulate_gradients(model, task.logits, batch, config)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip).item()
            check_finite(run, step, loss, norm)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            done = step + 1
            pausing = interrupts.received or done == stop_at
            seconds = time.perf_counter() - started
            speed = round((done - first) * task.tokens_per_step / seconds)
            bar.set_postfix_str(f"loss {loss:.3f}, {speed:,} tokens/s", refresh=False)
            bar.update()
            if done % config.log_every == 0 or done == config.steps:
                run.log(
                    step=done,
                    loss=loss,
                    rate=rate,
                    gradient_norm=norm,
                    tokens_per_s=speed,
                    seconds=round(earlier_s + seconds, 1),
                )
            evaluation_started = time.perf_counter()
            if done % config.eval_every == 0 or done == config.steps:
                with autocast(device, dtype):
                    measured = task.evaluate(model)
                report(run, done, measured, task.samples(model), bar)
            if done % config.save_every == 0 or done == config.steps or pausing:
                save(run, model, optimizers, done)
            if done % config.eval_every == 0 or done == config.steps:
                evaluation_s += time.perf_counter() - evaluation_started
                evaluations += 1
            step += 1
            if pausing and done < config.steps:
                bar.write(f"saved step {done}; go on: {task.command} --out {run.path} --resume")
                return None
    n_tokens = round(config.steps * task.tokens_per_step)
    return finish(run, model, {"tokens": n_tokens, "tokens_per_s": speed, **measured})


def accumulate_gradients(
    model: nn.Module,
    logits_of: Callable[..., Tensor],
    batch: tuple[Tensor, ...],
    config: TrainConfig,
) -> float:
    """Backward over a batch in parts; the mean loss of all its targets, in nats per token."""
    device = next(model.parameters()).device
    n_targets = max(int((batch[-1] != IGNORED).sum()), 1)
    total = 0.0
    for part in zip(*(tensor.chunk(config.n_micro_batches) for tensor in batch)):
        *inputs, targets = (tensor.to(device) for tensor in part)
        loss = F.cross_entropy(
            logits_of(model, *inputs).flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=config.label_smoothing,
        )
        (loss / n_targets).backward()
        total += loss.item() / n_targets
    return total


def check_finite(run: Run, step: int, loss: float, norm: float) -> None:
    """Stop before an update that would spoil the weights; comparisons fail for NaN."""
    if not (abs(loss) < float("inf") and norm < float("inf")):
        raise UserError(
            f"step {step + 1}: the loss ({loss}) or the gradient ({norm}) is not finite; nothing "
            f"was updated and the last checkpoint is kept; train again with another --out and a "
            f"lower learning_rate, on texts from that checkpoint: --init {run.path}"
        )


def save(run: Run, model: nn.Module, optimizers: Optimizers, step: int) -> None:
    """A checkpoint with all that the next step depends on."""
    weights = dict(model.named_parameters())  # tied ones once
    state = optimizer_tensors(optimizers) | {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["rng.cuda"] = torch.cuda.get_rng_state()
    folder = run.checkpoints / f"step-{step}"
    save_checkpoint(folder, weights, state, {"step": step, "model": run.model.to_dict()})
    run.drop_old_checkpoints()


def restore(run: Run, model: nn.Module, optimizers: Optimizers) -> int:
    """Put the newest sound checkpoint into place; the step to go on with."""
    folder, problems = newest_checkpoint(run.checkpoints)
    for problem in problems:
        print(f"passed over: {problem}")
    weights, state, facts = load_checkpoint(folder)
    load_weights(model, weights, folder)
    load_optimizer_tensors(optimizers, state)
    torch.set_rng_state(state["rng.cpu"])
    if torch.cuda.is_available() and "rng.cuda" in state:
        torch.cuda.set_rng_state(state["rng.cuda"])
    if facts["step"] == run.train.steps:
        raise UserError(f"{run.path} is complete already: nothing to resume")
    run.forget_after(facts["step"])
    print(f"resuming from {folder}")
    return facts["step"]


def report(
    run: Run, step: int, measured: dict[str, float], samples: list[tuple[str, str]], bar: tqdm
) -> None:
    run.log(step=step, **measured)
    run.add_samples(step, samples)
    run.draw_loss()
    figures = ", ".join(f"{name.replace('_', ' ')} {v:.4f}" for name, v in measured.items())
    bar.write(f"step {step}: {figures}\n  {samples[0][0]!r} -> {samples[0][1]!r}")


def finish(run: Run, model: nn.Module, measured: dict[str, float]) -> dict[str, Any]:
    """Write summary.json."""
    summary = {
        "steps": run.train.steps,
        "parameters": count_parameters(model),
        **measured,
        "data": run.data,
    }
    write_json(run.path / "summary.json", summary)
    print(f"done; next: python -m export {run.path} --out models/{run.path.name}")
    return summary
