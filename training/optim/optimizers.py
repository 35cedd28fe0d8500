"""The optimizers of a model's parameters, and the learning rate schedule.

>>> [round(rate_factor(s, 100, 10, 0.5), 2) for s in (0, 9, 50, 75, 99)]
[0.09, 0.91, 1.0, 0.5, 0.02]
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from gptcore.nn.layers import packed
from training.machine.parallel import split, whole
from training.optim.muon import Muon
from training.run.config import TrainConfig

Optimizers = list[torch.optim.Optimizer]


def build_optimizers(model: nn.Module, config: TrainConfig, dtype: torch.dtype) -> Optimizers:
    """Return Muon for the blocks' matrices, AdamW (arXiv 1711.05101) for all other parameters.

    Embeddings and the head are decayed; vectors, such as norms, are not. With optimizer=adamw, it
    is for all parameters, and decays each, which is PyTorch's default. `dtype`: the precision of
    Muon's matrix products.
    """
    if config.optimizer == "adamw":
        parameters = [parameter for _, parameter in trained(model)]
        group = {"params": parameters, "weight_decay": config.weight_decay}
        return [build_adamw([group], config)]
    matrices, embeddings, vectors = [], [], []
    for name, parameter in trained(model):
        if parameter.dim() < 2:
            vectors.append(parameter)
        elif "blocks." in name:
            matrices.append(parameter)
        else:
            embeddings.append(parameter)
    first = Muon(
        matrices,
        config.learning_rate,
        config.weight_decay,
        config.momentum,
        config.beta2,
        dtype,
        packed(model),
    )
    groups = [
        {"params": embeddings, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [first, build_adamw(groups, config)]


def trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters that are not frozen, by name."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def build_adamw(groups: list[dict], config: TrainConfig) -> torch.optim.AdamW:
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, fused=True)


def rate_factor(step: int, steps: int, warmup_steps: int, decay_share: float) -> float:
    """Return the factor of the peak learning rate at a step (arXiv 2405.18392, section 3).

    It rises linearly, stays at 1, and falls linearly towards 0.
    """
    warmup = (step + 1) / (warmup_steps + 1) if step < warmup_steps else 1.0
    decay_steps = max(1, round(steps * decay_share))
    return min(1.0, warmup, (steps - step) / decay_steps)


def set_rate(optimizers: Optimizers, rate: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def optimizer_tensors(optimizers: Optimizers, is_kept: bool) -> dict[str, Tensor]:
    """Return the optimizers' moments, gathered from all processes, as a flat dict on the CPU.

    All processes must call it; those that do not keep the result get nothing.
    """
    gathered = (
        (f"optimizer.{i}.{index}.{key}", whole(value))
        for i, optimizer in enumerate(optimizers)
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    )
    return {name: tensor.cpu() for name, tensor in gathered if is_kept}


def load_optimizer_tensors(optimizers: Optimizers, tensors: dict[str, Tensor]) -> None:
    """Load the result of optimizer_tensors, on any number of processes."""
    for i, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(f"optimizer.{i}."):
                _, _, index, key = name.split(".", 3)
                parameter = parameters[int(index)]
                is_moment = value.shape == parameter.shape  # AdamW's step counter is a scalar
                value = split(value, parameter) if is_moment else value
                state.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
