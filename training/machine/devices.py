"""Choice of device and precision, and compilation.

>>> pick_dtype("float32", torch.device("cpu"))
torch.float32
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn

from gptcore.nn.gpt import GPT
from training.machine.fast_attention import use_fast_attention
from training.machine.flops import utilisation
from training.machine.processes import World

# FLOPs from which a run on the CPU is compiled. On two cores (500 GFLOPS), compiling takes half
# a minute and shortens each step by a tenth: it pays off in runs of more than five minutes.
LONG_RUN = 2e14


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_dtype(wanted: str, device: torch.device, world: World = World()) -> torch.dtype:
    """Return the precision of the matrix products; "auto" is bfloat16 where it is clearly faster.

    "auto" depends on a timing, which may differ between processes: the first one decides for all.
    """
    if wanted == "auto":
        fast = world.any(world.is_first and has_fast_bfloat16(device))
        wanted = "bfloat16" if fast else "float32"
    return getattr(torch, wanted)


def has_fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_bfloat16_fast()


TIMED_SIZE = 1024  # of the matrices that are multiplied: large enough to fill the units


@cache
def multiplies_bfloat16_fast() -> bool:
    """Return whether this CPU multiplies bfloat16 matrices clearly faster than float32 ones.

    The function times both, because the processor's flags are not enough: bfloat16 is about four
    times as fast on Intel's matrix units (AMX) and on AMD's vector units, but no faster on
    Intel's vector units, which have the same instruction.
    """
    has = torch.cpu.get_capabilities()
    if not (has.get("amx_bf16", False) or has.get("avx512_bf16", False)):
        return False
    seconds = {torch.bfloat16: 0.0, torch.float32: 0.0}
    with one_thread():  # whose CPU time other load hardly changes, unlike the clock's
        for number in range(6):
            for dtype in seconds:
                matrix = torch.ones(TIMED_SIZE, TIMED_SIZE, dtype=dtype)
                start = time.thread_time()
                matrix @ matrix
                seconds[dtype] += (time.thread_time() - start) * (number > 0)  # the first warms up
    return seconds[torch.float32] > 1.5 * seconds[torch.bfloat16]


@contextmanager
def one_thread() -> Iterator[None]:
    """Enter a context in which PyTorch uses one thread.

    A second thread gains little for one row of a small model, and takes several times as long if
    the cores are busy.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return a context of mixed precision (arXiv 1710.03740).

    Weights stay in fp32; matrix products are computed in `dtype`.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def speed_up(model: nn.Module, compile: str, device: torch.device, flops: float) -> bool:
    """Use fast attention and compiled blocks where they help; return whether it compiled them.

    `compile`: "on", "off" or "auto", which compiles if a training of so many FLOPs saves more time
    than the compilation takes. The results equal the plain model's up to rounding.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for products outside autocast
    if not isinstance(model, GPT):
        return False  # a translator's batches differ in length: each length would be recompiled
    use_fast_attention(model, device)
    worth_it = device.type == "cuda" or flops > LONG_RUN
    if compile == "off" or (compile == "auto" and not worth_it):
        return False
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:  # a broken compiler can raise anything; training works without it
        reason = str(error).strip().splitlines() or [type(error).__name__]
        print(f"torch.compile does not work here ({reason[0][:200]}): training without it")
        return False
    print("compiling the blocks in the first step; --set compile=off avoids the wait")
    for block in model.blocks:
        only_in_training(block, torch.compile(block.forward, dynamic=False))
    return True


def only_in_training(block: nn.Module, fast: Callable[..., Any]) -> None:
    """Let `fast` compute the block in training, and the block itself in an evaluation.

    Lengths vary in an evaluation: a compiled block would be compiled again for each.
    """
    plain = block.forward
    block.forward = lambda *inputs: (fast if block.training else plain)(*inputs)


def gpu_figures(device: torch.device, flops_per_s: float | None) -> dict[str, float]:
    """Return a GPU's figures for a log line: peak memory in bytes, and the MFU.

    It is left out if the FLOPs or the card's peak are unknown. On a CPU the result is empty.
    """
    if device.type != "cuda":
        return {}
    figures: dict[str, float] = {"peak_memory": torch.cuda.max_memory_allocated(device)}
    if flops_per_s and (share := utilisation(flops_per_s, torch.cuda.get_device_name(device))):
        figures["mfu"] = round(share, 4)
    return figures
