"""What a training run asks of the machine: device, precision, memory, interrupts.

>>> pick_dtype("float32", torch.device("cpu"))
torch.float32
"""

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The precision of the matrix products; "auto" is bfloat16 where the hardware has it."""
    if wanted == "auto":
        if device.type == "cuda":
            has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            has_bfloat16 = torch.cpu.get_capabilities().get("amx_bf16", False)
        wanted = "bfloat16" if has_bfloat16 else "float32"
    return getattr(torch, wanted)


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Mixed precision (arXiv 1710.03740): weights stay in fp32, products are in `dtype`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


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


def is_terminal() -> bool:
    """Whether somebody watches: a log file gets a line of progress less often."""
    return sys.stderr.isatty()


# Windows has no SIGHUP, which a closed terminal sends.
SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]


class Paused(Exception):
    """An interrupt came while there was nothing to save."""


class Interrupts:
    """While entered, Ctrl-C, SIGTERM and a closed terminal set `received` once; a second one
    ends at once."""

    def __enter__(self) -> "Interrupts":
        self.received = self.is_saved = False
        self.previous = {s: signal.signal(s, self.note) for s in SIGNALS}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self.restore()
        if self.is_saved:
            raise Paused

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
