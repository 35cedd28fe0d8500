"""What a training run asks of the machine: device, precision, compiler, memory, interrupts.

>>> pick_dtype("float32", torch.device("cpu"))
torch.float32
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import nn

from gptcore.nn.fast import use_fast_attention
from gptcore.nn.gpt import GPT
from training.machine.flops import flops_per_token
from training.machine.processes import World

# Operations of a run that is worth compiling. On two cores, which reach 500 GFLOPS, compiling
# takes half a minute and makes a step a tenth shorter: it pays in runs of over five minutes.
LONG_RUN = 2e14


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_dtype(wanted: str, device: torch.device, world: World = World()) -> torch.dtype:
    """The precision of the matrix products; "auto" is bfloat16 where that is clearly faster.

    The first process decides "auto" for all: it is timed, so each might find something else.
    """
    if wanted == "auto":
        fast = world.any(world.is_first and has_fast_bfloat16(device))
        wanted = "bfloat16" if fast else "float32"
    return getattr(torch, wanted)


def has_fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_bfloat16_fast()


@cache
def multiplies_bfloat16_fast() -> bool:
    """Whether this CPU multiplies matrices of bfloat16 clearly faster than those of float32.

    It is timed, because the processor's flags do not tell: with bfloat16, Intel's tiles (AMX) and
    AMD's vector units are some four times as fast; Intel's vector units have the instruction,
    too, and are no faster.
    """
    has = torch.cpu.get_capabilities()
    if not (has.get("amx_bf16", False) or has.get("avx512_bf16", False)):
        return False
    best = {torch.bfloat16: float("inf"), torch.float32: float("inf")}
    for _ in range(5):  # in turns, since a busy machine slows both
        for dtype in best:
            matrix = torch.ones(1024, 1024, dtype=dtype)
            start = time.perf_counter()
            matrix @ matrix
            best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] > 1.5 * best[torch.bfloat16]


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Mixed precision (arXiv 1710.03740): weights stay in fp32, products are in `dtype`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def speed_up(model: nn.Module, compile: str, device: torch.device, n_tokens: int) -> bool:
    """Give the model the forms that train fastest here; return whether its blocks are compiled.

    `compile`: "on", "off", or "auto" for where a run over so many tokens gains more than the
    compiler costs. The results are those of the plain model, up to rounding.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for what is not bfloat16
    if not isinstance(model, GPT):
        return False  # a translator's batches differ in length: each would be compiled anew
    use_fast_attention(model, device)
    worth_it = device.type == "cuda" or flops_per_token(model) * n_tokens > LONG_RUN
    if compile == "off" or (compile == "auto" and not worth_it):
        return False
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever is amiss with a compiler, training goes on without
        reason = str(error).strip().splitlines() or [type(error).__name__]
        print(f"torch.compile does not work here ({reason[0][:200]}): training goes on without it")
        return False
    print("the first step compiles the blocks, which takes a while (--set compile=off)")
    for block in model.blocks:
        block.forward = compiled_in_training(block)
    return True


def compiled_in_training(block: nn.Module) -> Callable[..., Any]:
    """The block's forward, compiled for training alone: in an evaluation lengths vary, and each
    would be compiled anew."""
    plain, compiled = block.forward, torch.compile(block.forward, dynamic=False)

    def forward(*inputs: Any) -> Any:
        return compiled(*inputs) if block.training else plain(*inputs)

    return forward


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory instead of returning it: each step allocates the same
    large tensors, and fresh pages cost a fifth of the time on a CPU.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            trim_threshold, mmap_max = -1, -4  # of malloc.h
            libc.mallopt(mmap_max, 0)
            libc.mallopt(trim_threshold, 2**31 - 1)


# Windows has no SIGHUP, which a closed terminal sends.
SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]


class Paused(Exception):
    """An interrupt came; what there is to save has been saved."""


class Interrupts:
    """While entered, the first Ctrl-C, SIGTERM or closed terminal sets `received`; a second one
    ends the program at once."""

    def __enter__(self) -> "Interrupts":
        self.received = self.is_saved = False
        self.previous = {s: signal.signal(s, self.note) for s in SIGNALS}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self.restore()
        if self.is_saved:
            raise Paused
        os.write(2, b"\nstopping after this step; once more to stop at once, without saving\n")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While entered, an interrupt does not wait for the end of a step: it raises Paused."""
        if self.received:
            raise Paused
        self.is_saved = True
        try:
            yield
        finally:
            self.is_saved = False

    def restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def __exit__(self, *error: object) -> None:
        self.restore()
