"""Servers in processes of their own, and clients at addresses of their own."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.memory import resident
from export.runtimes.environments import PYTHON, Peer, install
from gptcore.system.wording import counted

READY_S = 180  # on busy cores
LLAMA = Peer("", pip=("xllamacpp==2026.10.11549",))


class Server(NamedTuple):
    """A running server: what it is called, its port and its process."""

    name: str
    port: int
    process: subprocess.Popen

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def memory(self) -> float:
        """Megabytes that it holds now."""
        return resident(self.process.pid) / 1e6


@contextmanager
def running(
    name: str,
    command: Sequence[object],
    port: int,
    log: IO | int = subprocess.DEVNULL,
    **environment: str,
) -> Iterator[Server]:
    """Run a server until the block ends; what it prints goes to `log`."""
    words = [str(word) for word in command]
    own = os.environ | environment
    process = subprocess.Popen(words, cwd=ROOT, env=own, stdout=log, stderr=log)
    try:
        wait_until_ready(port)
        yield Server(name, port, process)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def page(model: str, *options: str, log: IO | int = subprocess.DEVNULL) -> Iterator[Server]:
    """Run the page with its API; every visitor may have an address of its own."""
    port = free_port()
    command = [sys.executable, "app.py", "--model", model, "--port", port]
    command += ["--behind-proxy", "--public"]
    with running("the page", [*command, *options], port, log) as server:
        yield server


@contextmanager
def llama(gguf: Path, context: int, n_slots: int = 1, threads: int = 1) -> Iterator[Server]:
    """Run llama.cpp's own server; each slot holds a conversation of `context` tokens."""
    port = free_port()
    python = install("xllamacpp", LLAMA) / PYTHON
    program = Path(__file__).with_name("llama_server.py")
    command = [python, program, gguf, port, n_slots, context, threads]
    with running(f"llama.cpp, {counted(threads, 'thread')}", command, port) as server:
        yield server


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"the server on port {port} did not begin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def address(number: int) -> dict[str, str]:
    """Return the header with which a proxy tells a visitor's address."""
    return {"X-Forwarded-For": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}
