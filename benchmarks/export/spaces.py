"""A Space as the Hub starts it, as far as that goes without a container, and what it then needs.

    python benchmarks/export/spaces.py models/default [--sdk docker] [--python python3.12]

An empty environment gets the Space's requirements alone. The Space starts in it as its README.md or
its Dockerfile says, as user 1000, who may not write to the code, with the Hub's variables. Then it
answers its own examples. Run it as root, or user and permissions stay as they are.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from gradio_client import Client

from benchmarks.memory import resident
from export.ship.space import SDKS, write_space
from gptcore.bundle import read_facts
from gptcore.page.facts import examples_of

USER = 1000
# Who may read everything, as the interpreter may lie in root's home, and write to nothing.
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
READS = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
PORT = "7860"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--sdk", choices=SDKS, default="gradio")
    parser.add_argument("--python", default=sys.executable, help="(default: this one)")
    parser.add_argument("--port", default=PORT, help="(default: the Hub's, 7860)")
    options = parser.parse_args()
    if listens(options.port):
        parser.error(f"something listens on port {options.port}: give another --port")
    with tempfile.TemporaryDirectory() as temporary:
        space, environment = Path(temporary) / "space", Path(temporary) / "environment"
        write_space(options.model, space, sdk=options.sdk)
        begun = time.perf_counter()
        python = install(options.python, environment, space / "requirements.txt")
        print(f"installed in {time.perf_counter() - begun:.0f} s, {megabytes(environment):.0f} MB")
        begun = time.perf_counter()
        with started(space, str(python), options.port) as process:
            client = connected(process, options.port)
            print(f"answers after {time.perf_counter() - begun:.1f} s")
            for example in examples_of(read_facts(options.model)):
                print(f"{example!r}: {client.predict(example, api_name='/chat')!r}")
            print(f"{resident(process.pid) / 1e6:.0f} MB of memory")


def install(python: str, environment: Path, requirements: Path) -> Path:
    """Make an environment of the requirements alone; return its interpreter."""
    subprocess.run([python, "-m", "venv", environment], check=True)
    found = environment / "bin" / "python"
    subprocess.run([found, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    return found


def command_of(space: Path) -> tuple[list[str], dict[str, str]]:
    """Return the words and the variables with which a Space starts, from what the Hub reads."""
    readme = (space / "README.md").read_text(encoding="utf-8")
    facts = dict(line.split(": ", 1) for line in readme.split("---\n")[1].splitlines())
    if facts["sdk"] == "gradio":
        names = {"GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SERVER_PORT": PORT}
        return ["python", facts["app_file"]], names
    dockerfile = (space / "Dockerfile").read_text(encoding="utf-8")
    words = json.loads(re.search(r"^CMD (.+)$", dockerfile, re.MULTILINE)[1])
    assert facts["app_port"] in words
    return words, {}


def as_user(python: str) -> list[str]:
    """Return the words before a command that runs as user 1000; none where that is not allowed."""
    words = [*AS_USER, *READS]
    if not shutil.which(words[0]):
        return []
    tried = subprocess.run([*words, python, "-c", ""], capture_output=True)
    return [] if tried.returncode else words


@contextmanager
def started(space: Path, python: str, port: str) -> Iterator[subprocess.Popen]:
    """Start a Space with an interpreter, on a port in place of 7860."""
    words, names = command_of(space)
    words = [{"python": python, PORT: port}.get(word, word) for word in words]
    names = {name: {PORT: port}.get(value, value) for name, value in names.items()}
    with tempfile.TemporaryDirectory() as home:
        cache = Path(home) / ".cache" / "huggingface"
        hub = {"SPACE_ID": "ada/chat", "SYSTEM": "spaces", "HOME": home, "HF_HOME": str(cache)}
        if user := as_user(python):
            os.chown(home, USER, USER)
        environment = {"PATH": os.environ["PATH"], **hub, **names}
        process = subprocess.Popen([*user, *words], cwd=space, env=environment)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)


def connected(process: subprocess.Popen, port: str) -> Client:
    """Return a client of the page, once it answers."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "the page ended"
        if listens(port):
            return Client(f"http://127.0.0.1:{port}", verbose=False)
        time.sleep(0.2)
    raise AssertionError("the page did not start")


def listens(port: str) -> bool:
    """Return whether anything listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
