"""The README's commands, run one after the other as a reader would, at tiny sizes."""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SECONDS
from gradio_client import Client
from test_docs import ROOT, commands

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
SMALLER = {"--minutes 10": "--minutes 0.2"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a reader has it, with a book, and without runs."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("app.py", "gptcore", "training", "export"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "models").mkdir()
    (folder / "models" / "default").symlink_to(ROOT / "models" / "default")
    sentences = [f"The {n} foxes met {n + 1} geese by the old mill.\n" for n in range(2000)]
    (folder / "book.txt").write_text("".join(sentences))
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(folder)} | more


@contextmanager
def page(command: str, folder: Path) -> Iterator[Client]:
    """The page that a command opens, until it is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    words = [sys.executable, *shlex.split(command)[1:]]
    process = subprocess.Popen(words, cwd=folder, env=environment(folder, GRADIO_SERVER_PORT=port))
    try:
        for _ in range(120):
            time.sleep(1)
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
        yield Client(f"http://127.0.0.1:{port}", verbose=False)
    finally:
        process.terminate()
        process.wait(SECONDS)


def test_the_commands_are_those_that_this_test_can_run() -> None:
    for line in commands(README):
        known = ("pip install ", "python app.py", "python -m training ", "python -m export ")
        assert line.startswith((*known, "python -m pytest")), line
        if line.startswith("pip install -r "):
            assert (ROOT / line.split()[-1]).is_file(), line
    assert "python app.py" in commands(README)  # tests/runtime/test_page.py chats with that page


def test_train_export_and_chat_in_four(checkout: Path) -> None:
    for line in commands(README):
        for words, fewer in SMALLER.items():
            line = line.replace(words, fewer)
        if line.startswith(("python -m training ", "python -m export ")):
            words = [sys.executable, *shlex.split(line)[1:]]
            subprocess.run(words, cwd=checkout, env=environment(checkout), check=True, timeout=300)
        if line.startswith("python app.py --model"):
            with page(line, checkout) as client:
                assert client.predict("The 3 foxes", api_name="/complete")


def test_the_lines_of_python_print_a_reply(checkout: Path) -> None:
    program = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    words = [sys.executable, "-c", program]
    result = subprocess.run(
        words, cwd=checkout, env=environment(checkout), capture_output=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    reply, figures = result.stdout.rsplit("\n", 2)[:2]
    assert len(reply.split()) > 5 and "tokens, finished by 'end'" in figures
