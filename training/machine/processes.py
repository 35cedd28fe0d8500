"""The processes that train together: one, or as many as torchrun starts.

    torchrun --nproc-per-node 4 -m training book.txt --out runs/mine

Plain numbers are summed over gloo; gradients over NCCL on GPUs and over gloo on CPUs.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from gptcore.checks import UserError

Result = TypeVar("Result")

# How long the other processes wait while the first one prepares a corpus, which may be large.
# If the first one dies, torchrun ends the waiting ones.
PREPARE_TIMEOUT = timedelta(days=2)

# Parts of the messages of gloo and NCCL about a lost process.
LOST = ("connection closed", "connection reset", "connection refused", "timed out", "broken pipe")
NO_MEMORY = "DefaultCPUAllocator"  # which says so on a CPU, in other words on Windows


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # rank among the processes of this machine
    patient: dist.ProcessGroup | None = None  # a group with the timeout PREPARE_TIMEOUT

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes the files."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether this process was started without torchrun.

        torchrun can also start a single process, which tests DDP and FSDP on one GPU.
        """
        return self.patient is None

    def part(self, items):
        """Return this process's items of a sequence that all processes have."""
        return items[self.rank :: self.size]

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over the processes, in double precision."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def any(self, flag: bool) -> bool:
        return self.sum(flag)[0] > 0

    def wait(self) -> None:
        """Wait until all processes are here, so that they find what the first one wrote."""
        if self.size > 1:
            dist.barrier(self.patient)

    def in_turns(self, make: Callable[[], Result]) -> Result:
        """Call `make` on every process and return its result.

        The first process calls it first, then the first of each other machine, then the rest:
        later ones find on their disk what earlier ones wrote.
        """
        turn = 0 if self.is_first else 1 if self.local_rank == 0 else 2
        for now in range(3):
            if now == turn:
                result = make()
            self.wait()
        return result


def connect(rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    """Find the other processes; return a group with the timeout PREPARE_TIMEOUT."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store: dist.Store = dist.TCPStore(address, port, is_master=is_master, timeout=timeout)
    # Without a prefix, a restarted process may read the addresses of processes that died.
    store = dist.PrefixStore(f"restart-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return dist.new_group(timeout=PREPARE_TIMEOUT, backend="gloo")


@contextmanager
def join(timeout_s: float) -> Iterator[World]:
    """Join the processes that torchrun started; without torchrun, yield a World of one process.

    Only the first process prints. Raises UserError if another process ends or does not answer
    for `timeout_s` seconds, or if the memory is not enough.
    """
    rank, size, local_rank, patient = 0, 1, 0, None
    is_alone = "TORCHELASTIC_RUN_ID" not in os.environ
    try:
        if not is_alone:
            names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
            rank, size, local_rank = (int(os.environ[name]) for name in names)
            if torch.cuda.is_available():
                torch.cuda.set_device(local_rank)
            patient = connect(rank, size, timedelta(seconds=timeout_s))
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere if rank else sys.stdout):
            yield World(rank, size, local_rank, patient)
        if patient:
            dist.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or NO_MEMORY in str(error):
            raise UserError(
                f"there is not enough memory ({str(error).splitlines()[0]}): set a smaller "
                f"micro_batch_size, or gradient_checkpointing to on; a run with checkpoints can "
                f"resume with these"
            ) from None
        is_lost = isinstance(error, dist.DistError) or any(w in str(error).lower() for w in LOST)
        if is_alone or not is_lost:
            raise
        raise UserError(
            f"process {rank} of {size}: another process ended or did not answer for "
            f"{timeout_s:g} s; all checkpoints are kept, --resume continues from the newest"
        ) from None
