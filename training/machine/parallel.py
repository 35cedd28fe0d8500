"""A model on one device, copied to several processes (DDP), or split between them (FSDP2).

    >>> network = parallelise(model, "ddp", World(), torch.device("cpu"))   # doctest: +SKIP

`whole` and `split` go from a parameter's part on this process to all of it, and back.
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
    """The module to call in training; the model's own parameters move to the device.

    `kind`: "ddp" (arXiv 2006.15704), every process has all of the model; "fsdp"
    (arXiv 2304.11277), each has a part of every parameter, gradient and moment. Without
    torchrun it is the model itself. UserError: "fsdp" of a translator.
    """
    if world.is_alone:
        return model.to(device)
    if kind == "fsdp":
        if not isinstance(model, GPT):
            raise UserError("parallel=fsdp splits decoders only: choose parallel=ddp")
        mesh = init_device_mesh(device.type, (world.size,))
        for name, module in model.named_modules():
            if name.rpartition(".")[0].endswith("blocks"):
                fully_shard(module, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return DistributedDataParallel(model.to(device), gradient_as_bucket_view=True)


def synchronise(network: nn.Module, wanted: bool) -> None:
    """Whether the next backward sums the gradients over the processes: only the last one of
    a batch needs to."""
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(wanted)
    elif isinstance(network, DistributedDataParallel):
        network.require_backward_grad_sync = wanted


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which this process may have a part only."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def split(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor, split as `like` is."""
    if not isinstance(like, DTensor):
        return tensor
    tensor = tensor.to(like.device)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
