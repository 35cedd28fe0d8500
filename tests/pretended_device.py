"""A device that this machine lacks, pretended: what breaks on a GPU alone breaks here, too.

    >>> with PretendedDevice():
    ...     x = torch.ones(2, device="cuda")
    ...     x + torch.ones(2)
    Traceback (most recent call last):
    RuntimeError: Tensor.add: tensors on cuda:0 and on the cpu

All is computed on the CPU; the mode only remembers which tensors would be on the GPU. As on a
real one, an operation refuses tensors of both places, and numpy does not see the GPU's. (PyTorch's
own FakeTensorMode cannot do this: where PyTorch was built without CUDA it refuses the name.)
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)

# Functions whose tensors may be in two places: the first of them is where the result is.
COPYING = ("Tensor.copy_", "Tensor.data.__set__", "_has_compatible_shallow_copy_type")
# A real GPU takes indices from the host for these.
INDEXING = ("Tensor.__getitem__", "Tensor.__setitem__")
ONLY_ON_THE_HOST = ("Tensor.numpy", "Tensor.__array__")


class PretendedDevice(TorchFunctionMode):
    """While entered, torch's functions act as if there were a device "cuda"."""

    def __torch_function__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = (resolve_name(func) or func.__name__).removeprefix("torch.")
        if name in ("Tensor.to", "Tensor.cpu", "Tensor.cuda"):
            return moved(name, *args, **kwargs)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs = kwargs | {"device": CPU}
        place = pretended(wanted) if wanted is not None else common_place(name, args, kwargs)
        if name == "Tensor.device.__get__":
            return place
        if place.type == "cuda" and name in ONLY_ON_THE_HOST:
            raise TypeError(f"{name}: this tensor is on {place}: use .cpu() first")
        result = func(*args, **kwargs)
        if name == "Tensor.data.__set__":
            put(args[0], place_of(args[1]))
        for tensor in tensors_in(result):
            put(tensor, place)
        return result


def pretended(wanted: torch.device | str) -> torch.device:
    return CUDA if torch.device(wanted).type == "cuda" else CPU


def place_of(tensor: Tensor) -> torch.device:
    return getattr(tensor, "pretended_place", CPU)


def put(tensor: Tensor, place: torch.device) -> None:
    if place != place_of(tensor):
        tensor.pretended_place = place


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def common_place(name: str, args: tuple, kwargs: dict[str, Any]) -> torch.device:
    """Where all tensors of a call are; RuntimeError if they are in two places."""
    tensors = list(tensors_in([args, kwargs]))
    first = place_of(tensors[0]) if tensors else CPU
    if name in COPYING or (name in INDEXING and first == CUDA):
        return first
    # A single number of the host's goes along with the GPU's tensors, as on a real one.
    places = {place_of(t) for t in tensors if t.dim() or place_of(t) == CUDA} or {CPU}
    if len(places) > 1:
        raise RuntimeError(f"{name}: tensors on {CUDA} and on the cpu")
    return places.pop()


def moved(name: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What Tensor.to, .cpu and .cuda return: the same tensor, or a copy on the other device."""
    if name != "Tensor.to":
        target, dtype = (CPU if name == "Tensor.cpu" else CUDA), None
    elif args and isinstance(args[0], Tensor):
        target, dtype = place_of(args[0]), args[0].dtype
    else:
        target, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
    result = tensor if dtype is None else tensor.to(dtype)
    place = place_of(tensor) if target is None else pretended(target)
    if result is tensor and place != place_of(tensor):
        result = tensor.clone()
    put(result, place)
    return result
