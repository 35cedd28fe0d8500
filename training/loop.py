"""The training loop, a visible `for`.

    >>> train(Run.load("runs/mine"), shards)                             # doctest: +SKIP

Each step is a pure function of the checkpoint before it and of (seed, step): batches are
not drawn from a loader but computed, so a resumed run equals an uninterrupted one bit for bit.
"""

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from gptcore.checks import UserError
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import load_checkpoint, load_weights, newest_checkpoint, save_checkpoint
from gptcore.nn.gpt import GPT, whole_sequence
from training.batches import IGNORED, Rows
from training.evaluate import Evaluation, evaluate, write_samples
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
from training.shards import Shards

Optimizers = list[torch.optim.Optimizer]


def train(
    run: Run,
    shards: Shards,
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
    train_rows = Rows(shards, "train", run.model.block_size)
    val_rows = Rows(shards, "val", run.model.block_size)
    model = build_model(run.model).to(device).train()
    if initial:
        load_weights(model, initial, "--init")
    optimizers = build_optimizers(model, config)
    if resume:
        first = restore(run, model, optimizers)
    else:
        first = 0
        run.create(shards.tokenizer)  # not before all that can be wrong has been seen

    tokens_per_step = config.batch_size * run.model.block_size
    epoch = len(train_rows) / config.batch_size
    precision = str(dtype).removeprefix("torch.")
    print(
        f"{count_parameters(model):,} parameters on {device} in {precision}; "
        f"{tokens_per_step:,} tokens a step, {epoch:.1f} steps an epoch"
    )
    evaluation, started = None, time.perf_counter()
    often = 0.2 if is_terminal() else 30.0
    bar = tqdm(initial=first, total=config.steps, unit="step", mininterval=often)
    with Interrupts() as interrupts, bar:
        for step in range(first, config.steps):
            rate = config.learning_rate * rate_factor(
                step, config.steps, config.warmup_steps, config.decay_share
            )
            set_rate(optimizers, rate)
            batch = train_rows.batch(train_rows.order(config.seed, step, config.batch_size))
            with autocast(device, dtype):
                loss = accumulate_gradients(model, *batch, config.n_micro_batches)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip).item()
            check_finite(run, step, loss, norm)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            done = step + 1
            pausing = interrupts.received or done == stop_at
            speed = round((done - first) * tokens_per_step / (time.perf_counter() - started))
            bar.set_postfix_str(f"loss {loss:.3f}, {speed:,} tokens/s", refresh=False)
            bar.update()
            if done % config.log_every == 0 or done == config.steps:
                run.log(step=done, loss=loss, rate=rate, gradient_norm=norm, tokens_per_s=speed)
            if done % config.eval_every == 0 or done == config.steps:
                with autocast(device, dtype):
                    evaluation = evaluate(model, val_rows, min(8, config.micro_batch_size))
                report(run, done, evaluation, write_samples(model, val_rows), bar)
            if done % config.save_every == 0 or done == config.steps or pausing:
                save(run, model, optimizers, done)
            if pausing and done < config.steps:
                bar.write(f"saved step {done}; go on: python -m training --out {run.path} --resume")
                return None
    return finish(run, model, evaluation, speed)


def accumulate_gradients(model: GPT, x: Tensor, y: Tensor, n_micro_batches: int) -> float:
    """Backward over a batch in parts; the mean loss of all its targets, in nats per token."""
    device = next(model.parameters()).device
    n_targets = max(int((y != IGNORED).sum()), 1)
    total = 0.0
    for part_x, part_y in zip(x.chunk(n_micro_batches), y.chunk(n_micro_batches)):
        logits, _ = model(**whole_sequence(part_x.to(device)))
        loss = F.cross_entropy(
            logits.flatten(0, 1), part_y.flatten().to(device), ignore_index=IGNORED, reduction="sum"
        )
        (loss / n_targets).backward()
        total += loss.item() / n_targets
    return total


def check_finite(run: Run, step: int, loss: float, norm: float) -> None:
    """Stop before an update that would spoil the weights; comparisons fail for NaN."""
    if not (abs(loss) < float("inf") and norm < float("inf")):
        raise UserError(
            f"step {step + 1}: the loss ({loss}) or the gradient ({norm}) is not finite; nothing "
            f"was updated and the last checkpoint is kept; train on from it with "
            f"--init {run.path}, another --out and a lower learning_rate"
        )


def save(run: Run, model: GPT, optimizers: Optimizers, step: int) -> None:
    """A checkpoint with all that the next step depends on."""
    weights = dict(model.named_parameters())  # tied ones once
    state = optimizer_tensors(optimizers) | {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["rng.cuda"] = torch.cuda.get_rng_state()
    folder = run.checkpoints / f"step-{step}"
    save_checkpoint(folder, weights, state, {"step": step, "model": run.model.to_dict()})
    run.drop_old_checkpoints()


def restore(run: Run, model: GPT, optimizers: Optimizers) -> int:
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


def report(run: Run, step: int, result: Evaluation, samples: list, bar: tqdm) -> None:
    run.log(step=step, val_loss=result.loss, bits_per_byte=result.bits_per_byte)
    run.add_samples(step, samples)
    run.draw_loss()
    bar.write(
        f"step {step}: held-out loss {result.loss:.4f} nats per token, "
        f"{result.bits_per_byte:.4f} bits per byte\n  {samples[0][0]!r} -> {samples[0][1]!r}"
    )


def finish(run: Run, model: GPT, result: Evaluation, speed: int) -> dict[str, Any]:
    """Write summary.json."""
    summary = {
        "steps": run.train.steps,
        "tokens": run.train.steps * run.train.batch_size * run.model.block_size,
        "tokens_per_s": speed,
        "parameters": count_parameters(model),
        "val_loss": result.loss,
        "bits_per_byte": result.bits_per_byte,
        "data": run.data,
    }
    write_json(run.path / "summary.json", summary)
    print(f"done; next: python -m export {run.path} --out models/{run.path.name}")
    return summary
