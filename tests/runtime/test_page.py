"""The page of the model that ships, started by its command and asked over HTTP."""

import json
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from conftest import ROOT, TINY
from gradio_client import Client

from gptcore.bundle import default_model, load_bundle
from gptcore.system.runtime import has_gpu_package, installed_runtimes, runtime_line


@pytest.mark.slow
def test_the_page_says_what_it_found_and_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "app.py", "--port", port, "--translate", TINY / "translator"]
    page = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert page.stdout.readline().strip() == runtime_line(
            installed_runtimes(), has_gpu_package()
        )
        assert "gptcore chat: 8,262,432 parameters on " in page.stdout.readline()
        while not (line := page.stdout.readline()).startswith("http"):
            assert line, "the page ended"
        reply = ask(port)
        with urlopen(f"http://127.0.0.1:{port}/view/facts.json") as answer:
            assert json.load(answer)["translator"]["name"] == "fixture-translator"
        if sys.platform == "linux":
            before = wake_ups(page.pid)
            time.sleep(2)
            assert wake_ups(page.pid) - before < 400, "a page that nobody asks is idle"
    finally:
        page.terminate()
        page.communicate()
    assert reply.lower().startswith(("hello", "hi", "hey"))


def ask(port: str) -> str:
    """The likeliest reply to a greeting, from a page that may still be starting."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", int(port))).close()
        except OSError:
            time.sleep(0.1)
        else:
            client = Client(f"http://127.0.0.1:{port}", verbose=False)
            return client.predict("Hello!", temperature=0, api_name="/chat")
    raise TimeoutError(port)


def wake_ups(process: int) -> int:
    """How often the threads of a process have waited for something."""
    n = 0
    for task in Path(f"/proc/{process}/task").glob("*/status"):
        with suppress(OSError):  # it has ended
            found = re.search(r"voluntary_ctxt_switches:\s+(\d+)", task.read_text())
            n += int(found[1]) if found else 0
    return n


def test_the_default_model_is_sound_and_found_wherever_gptcore_is() -> None:
    assert default_model().parts[-2:] == ("models", "default")
    assert load_bundle(default_model()).is_chat
