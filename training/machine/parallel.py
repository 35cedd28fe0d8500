"""Data parallelism: a model copied to each process (DDP) or split between them (FSDP2).

    >>> network = parallelise(model, "ddp", World(), torch.device("cpu"))   # doctest: +SKIP

`whole` gathers a parameter from its parts; `split` returns this process's part of it.
"""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from gptcore.checks import UserError
from gptcore.nn.gpt import GPT
from training.machine.processes import World


def parallelise(model: nn.Module, kind: str, world: World, device: torch.device) -> nn.Module:
    """Return the module to call in training; the model's parameters move to the device.

    `kind`: "ddp" (arXiv 2006.15704): each process has the whole model; "fsdp"
    (arXiv 2304.11277): each has a part of every parameter, gradient and moment. Without
    torchrun the result is the model itself. Raises UserError for "fsdp" with a translator.
    """
    if world.is_alone:
        return model.to(device)
    if kind == "fsdp":
        if not isinstance(model, GPT):
            raise UserError("parallel=fsdp works for decoders only: choose parallel=ddp")
        mesh = init_device_mesh(device.type, (world.size,))
        for name, module in model.named_modules():
            if name.rpartition(".")[0].endswith("blocks"):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)  # in place
        return model
    # The buffers, tables of positions, are equal on all processes and stay so.
    return DistributedDataParallel(
        model.to(device), gradient_as_bucket_view=True, forward_sync_buffers=False
    )


def synchronise(network: nn.Module, wanted: bool) -> None:
    """Set whether the next backward pass averages the gradients over the processes.

    Only the last micro-batch of a step needs it.
    """
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(wanted)
    elif isinstance(network, DistributedDataParallel):
        network.require_backward_grad_sync = wanted


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor; a DTensor is gathered from all processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def split(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this process's part of a whole tensor, sharded like `like`."""
    if not isinstance(like, DTensor):
        return tensor
    tensor = tensor.to(like.device)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
