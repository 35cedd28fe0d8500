"""The environments of the other runtimes, each created when it is first needed.

    >>> with start("onnxruntime-genai", Path("models/nano")) as peer:     # doctest: +SKIP
    ...     peer.ask([[3, 5, 8]], n=10)["ids"]

They are separate because their packages conflict: one needs an older transformers, another brings
its own ONNX Runtime. They are kept in ~/.cache/gptcore/peers, or in GPTCORE_PEERS, and may be
deleted at any time. Versions pin the packages of pip, and hashes those of npm.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

from gptcore.checks import check_choice
from gptcore.system.files import cache_folder, file_sha256, locked

PROGRAMS = Path(__file__).parent
ROOT = PROGRAMS.parent.parent
NPM = PROGRAMS / "npm"  # the programs in JavaScript; pins the packages of npm and their hashes
PYTHON = Path("Scripts/python.exe") if os.name == "nt" else Path("bin/python")
LONGEST_REASON = 100  # characters


@dataclass(frozen=True)
class Peer:
    """A runtime: its program, and the packages it needs."""

    program: str
    pip: tuple[str, ...] = ()
    npm: bool = False  # it needs the packages of npm
    here: str = ""  # pip installs nothing if the running Python has this package
    batches: bool = True  # it takes several prompts at once


PEERS = {
    "gptcore": Peer("gptcore.py", batches=False),
    "pytorch": Peer("pytorch.py", batches=False),
    "onnxruntime": Peer("onnxruntime.py"),
    "onnxruntime-genai": Peer(
        "genai.py", pip=("onnxruntime-genai==0.18.0", "onnxruntime==1.31.1", "numpy==2.4.6")
    ),
    "transformers": Peer(
        "transformers.py", pip=("transformers==5.23.0", "torch==2.13.0"), here="transformers"
    ),
    "optimum-onnx": Peer(
        "optimum.py", pip=("optimum-onnx==0.1.0", "onnxruntime==1.31.1", "torch==2.13.0")
    ),
    "transformers.js": Peer("npm/transformers_js.mjs", npm=True),
    # The runtime below transformers.js, which brings it.
    "onnxruntime-node": Peer("npm/onnxruntime_node.mjs", npm=True),
    "onnxruntime-web": Peer(
        "onnxruntime_web.py",
        pip=("playwright==1.65.2", "numpy==2.4.6"),
        npm=True,
        here="playwright",
    ),
    "openvino": Peer("openvino.py", pip=("openvino==2026.4.1",)),
    "llama.cpp": Peer("llama_cpp.py", pip=("llama-cpp-python==0.3.36",)),
}


PATIENCE_S = 1800.0  # seconds of silence after which a runtime hangs, and is ended


class PeerError(Exception):
    """A runtime could not be installed, started or used; the message says why in a few words."""


class Running:
    """A runtime that has been started: its description of itself, and its answers."""

    def __init__(self, command: list[str], folder: Path):
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            # The program may not download what the folder lacks.
            env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            encoding="utf-8",
        )
        assert self.process.stdin and self.process.stdout
        self.questions, self.answers = self.process.stdin, self.process.stdout
        self.facts = self._read()

    def ask(self, prompts: list[list[int]], n: int) -> dict[str, Any]:
        """Return `n` greedy ids per prompt, and the seconds that prompts and tokens took."""
        with suppress(BrokenPipeError):  # it has ended: _read says how
            print(json.dumps({"prompts": prompts, "n": n}), file=self.questions, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        watchdog = Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        try:
            line = self.answers.readline()
        finally:
            watchdog.cancel()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            raise PeerError(f"it ended with {code}: {last_line(self.errors.read())}")
        return json.loads(line)

    def close(self) -> None:
        with suppress(BrokenPipeError):  # a question that it did not read
            self.questions.close()
        self.process.wait()


@contextmanager
def start(name: str, model: Path, threads: int = 1, *more: str) -> Iterator[Running]:
    """Install what the runtime needs and start it on a folder; raises PeerError."""
    check_choice("runtime", name, PEERS)
    peer = PEERS[name]
    folder = install(name, peer)
    arguments = [str(model.resolve()), str(threads), *more]
    running = Running([*command(peer, folder), *arguments], folder)
    try:
        yield running
    finally:
        running.close()


def command(peer: Peer, folder: Path) -> list[str]:
    program = Path(peer.program)
    if program.suffix == ".mjs":
        return [which("node"), str(PROGRAMS / program)]
    python = folder / PYTHON if pip_packages(peer) else sys.executable
    return [str(python), "-m", f"export.runtimes.{program.stem}"]


def pip_packages(peer: Peer) -> tuple[str, ...]:
    return () if peer.here and find_spec(peer.here) else peer.pip


def install(name: str, peer: Peer) -> Path:
    """Return the runtime's environment; it is created anew if its packages differ."""
    cache = Path(os.environ.get("GPTCORE_PEERS") or cache_folder() / "peers").expanduser()
    pip, pinned = pip_packages(peer), sorted(NPM.glob("package*.json")) if peer.npm else []
    folder = cache / (name if pip or not pinned else "npm")  # which several runtimes share
    python, marker = folder / PYTHON, folder / "installed.txt"
    content = "\n".join([sys.version, *pip, *(file_sha256(path) for path in pinned)])
    with locked(folder.with_name(f"{folder.name}.lock")):
        if marker.is_file() and marker.read_text(encoding="utf-8") == content:
            return folder
        if pip or pinned:
            names = ", ".join([*pip, *["the packages of npm"] * peer.npm])
            print(f"installing {names} into {folder}: this takes minutes", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if pip:
            # A pip of its own takes seconds: this Python's installs there, if it has one. To look
            # for its module would make setuptools let go of distutils, which torch.compile needs.
            has_pip = any(distributions(name="pip"))
            run(sys.executable, "-m", "venv", *["--without-pip"] * has_pip, str(folder))
            where = [sys.executable, "-m", "pip", "--python", str(python)]
            installer = where if has_pip else [str(python), "-m", "pip"]
            run(*installer, "install", "--quiet", "--no-compile", *pip)
        if pinned:
            for path in pinned:
                shutil.copy(path, folder)
            options = ["--ignore-scripts", "--no-audit", "--no-fund"]
            # npm ci refuses a package with another hash.
            run(which("npm"), "ci", *options, "--prefix", str(folder))
        marker.write_text(content, encoding="utf-8")
    return folder


def which(program: str) -> str:
    found = shutil.which(program)
    if not found:
        raise PeerError(f"{program} is not installed")
    return found


def run(*words: str) -> None:
    result = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace")
    if result.returncode:
        said = result.stdout + result.stderr
        code = re.search(r"^npm error code .+$", said, re.MULTILINE)  # what follows is long
        reason = code[0] if code else last_line(said)
        raise PeerError(f"{Path(words[0]).name} failed: {reason}")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LONGEST_REASON] if lines else ""
