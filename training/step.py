"""One training step: gradients of a batch, clipping, and an update of the weights.

    >>> values = step(state, task.batch(state.step), task.logits, config)    # doctest: +SKIP
    >>> values["loss"]                                                       # doctest: +SKIP
    2.31

The training loop, the plan's pilot runs and the benchmark share this function.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from training.data.rows import IGNORED
from training.machine.devices import autocast
from training.machine.parallel import synchronise, whole
from training.optim.optimizers import rate_factor, set_rate
from training.run.config import TrainConfig
from training.state import State

# oneDNN compiles its kernels for each new number of rows, which takes as long as a product.
ROWS = 256


def step(
    state: State,
    batch: tuple[Tensor, ...],
    logits_of: Callable[..., Tensor],
    config: TrainConfig,
) -> dict[str, float]:
    """Update the weights once; return the loss (nats per token), learning rate and gradient norm.

    `batch` is this process's part: the model's inputs, then the targets (B, T).
    `logits_of(network, *inputs)` returns (B, T, V). A step whose loss or gradient is not finite
    updates nothing and is counted in `state.bad_steps`; its gradients stay until the next step.
    """
    torch.manual_seed(seed_of(config.seed, state.step, state.world.rank))
    factor = rate_factor(state.step, config.steps, config.warmup_steps, config.decay_share)
    rate = config.learning_rate * factor
    set_rate(state.optimizers, rate)
    for optimizer in state.optimizers:
        optimizer.zero_grad(set_to_none=True)
    with autocast(state.device, state.dtype):
        loss = accumulate_gradients(state, batch, logits_of, config)
    parameters = list(state.model.parameters())
    norm = whole(get_total_norm([p.grad for p in parameters if p.grad is not None]))
    if abs(loss) < float("inf") and norm < float("inf"):  # false for NaN, too
        clip_grads_with_norm_(parameters, config.grad_clip, norm)
        for optimizer in state.optimizers:
            optimizer.step()
        state.bad_steps = 0
    else:
        state.bad_steps += 1
    state.step += 1
    return {"loss": loss, "rate": rate, "gradient_norm": norm.item()}


def accumulate_gradients(
    state: State,
    batch: tuple[Tensor, ...],
    logits_of: Callable[..., Tensor],
    config: TrainConfig,
) -> float:
    """Run forward and backward over a batch in micro-batches; return the mean loss (nats/token).

    `batch` is this process's part; the loss and the gradients are those of the whole batch.
    """
    network, world, device = state.network, state.world, state.device
    [n_targets] = world.sum((batch[-1] != IGNORED).sum().item())
    n_parts = config.n_micro_batches(world.size)
    loss_of = build_loss(state.is_compiled)
    losses: list[Tensor] = []
    for i, part in enumerate(zip(*(tensor.tensor_split(n_parts) for tensor in batch))):
        rows = learned_rows(part[-1]).to(device)
        *inputs, targets = (tensor.to(device) for tensor in part)
        synchronise(network, i == n_parts - 1)
        with only_rows(network, rows):
            logits = logits_of(network, *inputs).flatten(0, -2)
        total = loss_of(logits, targets.flatten()[rows], config.label_smoothing)
        loss = total / max(n_targets, 1)
        (loss * world.size).backward()  # DDP and FSDP average the gradients; this makes it a sum
        losses.append(loss.detach())
    return world.sum(float(sum(losses)))[0]


def learned_rows(targets: Tensor) -> Tensor:
    """Return the indices (N,) of the learned tokens in the flattened targets (B, T).

    Others fill them up until N is a multiple of ROWS. `targets` are on the CPU: to ask a GPU for
    their number is to wait for it.
    """
    is_ignored = targets.flatten() == IGNORED
    n_learned = len(is_ignored) - int(is_ignored.sum())
    return is_ignored.argsort(stable=True)[: -(-n_learned // ROWS) * ROWS]


@contextmanager
def only_rows(network: nn.Module, rows: Tensor) -> Iterator[None]:
    """Enter a context in which the head computes the logits of these rows alone, as (N, V).

    The head takes a quarter of a small model's time, and half of a conversation is not learned.
    """
    model: Any = getattr(network, "module", network)  # DDP wraps the model
    hook = model.head.register_forward_pre_hook(lambda _, inputs: (inputs[0].flatten(0, -2)[rows],))
    try:
        yield
    finally:
        hook.remove()


def summed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the summed cross entropy (nats) of logits (N, V); targets (N,) may be IGNORED."""
    return F.cross_entropy(
        logits, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )


@cache
def build_loss(is_compiled: bool) -> Callable[[Tensor, Tensor, float], Tensor]:
    """Return summed_loss, or a compiled form, which never writes the logits in float32.

    The number of rows changes with each batch, and must not be compiled anew.
    """
    return torch.compile(summed_loss, dynamic=True) if is_compiled else summed_loss


def seed_of(seed: int, step: int, rank: int) -> int:
    """Return the seed for the random numbers of one step on one process."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
