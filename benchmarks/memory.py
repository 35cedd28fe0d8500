"""The most resident memory of this process since a moment, in bytes. Needs Linux."""

from pathlib import Path


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
