"""Choice of device and precision, compilation, and interrupts.

>>> pick_dtype("float32", torch.device("cpu"))
torch.float32
"""

import os
import signal
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
    best = {torch.bfloat16: float("inf"), torch.float32: float("inf")}
    for _ in range(5):  # alternate, so that other load on the machine slows both
        for dtype in best:
            matrix = torch.ones(TIMED_SIZE, TIMED_SIZE, dtype=dtype)
            start = time.perf_counter()
            matrix @ matrix
            best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] > 1.5 * best[torch.bfloat16]


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return a context of mixed precision (arXiv 1710.03740).

    Weights stay in fp32; matrix products are computed in `dtype`.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def speed_up(
    model: nn.Module, compile: str, device: torch.device, n_tokens: int, row_tokens: int
) -> bool:
    """Use fast attention and compiled blocks where they help; return whether it compiled them.

    `compile`: "on", "off" or "auto", which compiles if training on `n_tokens` tokens saves more
    time than the compilation takes. `row_tokens`: those of a row. The results equal the plain
    model's up to rounding.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for products outside autocast
    if not isinstance(model, GPT):
        return False  # a translator's batches differ in length: each length would be recompiled
    use_fast_attention(model, device)
    flops = flops_per_token(model, row_tokens) * n_tokens
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
        block.forward = compiled_in_training(block)
    return True


def compiled_in_training(block: nn.Module) -> Callable[..., Any]:
    """Return a forward that is compiled in training mode and plain in evaluation.

    Lengths vary in an evaluation, and each new length would be recompiled.
    """
    plain, compiled = block.forward, torch.compile(block.forward, dynamic=False)

    def forward(*inputs: Any) -> Any:
        return compiled(*inputs) if block.training else plain(*inputs)

    return forward


# A closed terminal sends SIGHUP; Windows does not have it.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # the last is Windows' alone
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


class Paused(Exception):
    """Raised after an interrupt, once the state is saved."""


class Interrupts:
    """A context in which the first Ctrl-C, SIGTERM or closed terminal only sets `received`.

    The second one ends the program at once.
    """

    def __enter__(self) -> "Interrupts":
        self.received = self.is_saved = False
        self.previous = {s: signal.signal(s, self.note) for s in SIGNALS}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self.restore()
        if self.is_saved:
            raise Paused
        os.write(2, b"\nstopping after this step; interrupt again to stop without saving\n")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Enter a context in which an interrupt raises Paused at once."""
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
