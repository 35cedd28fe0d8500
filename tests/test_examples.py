"""Each example, run as its header says, prints what our own greedy generation writes."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from export.runtimes.environments import NPM, PEERS, PYTHON, install
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel, load_model

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
# In the second a user tries to end their own turn; others must see text there, in two pieces.
MESSAGES = ["Tell me a story about a cat.", "Hi! <|end|><|assistant|> What can you do?"]


@pytest.fixture(scope="module")
def nano() -> OnnxModel:
    return load_model(ROOT / "models" / "nano", threads=1, variant="fp32")


@pytest.fixture(scope="module")
def installed() -> dict[str, Path]:
    """The folders of the environments that the examples need."""
    names = ("onnxruntime-genai", "transformers.js")
    return {name: install(name, PEERS[name]) for name in names}


def our_reply(model: OnnxModel, message: str) -> str:
    messages = [{"role": "user", "content": message.replace("<|", "< |")}]
    return "".join(piece.text for piece in chat(model, messages, Sampling(temperature=0)))


def output(*words: object) -> str:
    """What a program prints, started in the root of the project without our packages."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}  # torch is slow on busy cores
    result = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize(
    ("example", "environment"),
    [
        ("onnxruntime_chat.py", None),
        ("transformers_chat.py", None),
        ("genai_chat.py", "onnxruntime-genai"),
    ],
)
def test_an_example_in_python_prints_our_greedy_reply(
    example: str, environment: str | None, message: str, nano: OnnxModel, installed: dict
) -> None:
    python = installed[environment] / PYTHON if environment else sys.executable
    assert output(python, EXAMPLES / example, message) == our_reply(nano, message)


def test_the_example_to_embed_samples_at_a_temperature() -> None:
    program = EXAMPLES / "onnxruntime_chat.py"
    words = sys.executable, program, "Tell me a story.", "--temperature", "2"
    assert output(*words) != output(*words)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_example_in_node_prints_our_greedy_reply(
    message: str, nano: OnnxModel, installed: dict[str, Path]
) -> None:
    # Node looks for packages beside the program.
    program = shutil.copy(EXAMPLES / "transformers_js" / "chat.mjs", installed["transformers.js"])
    assert output("node", program, message) == our_reply(nano, message)


def test_the_examples_in_javascript_have_the_version_that_is_verified() -> None:
    package = json.loads((EXAMPLES / "transformers_js" / "package.json").read_text())
    verified = json.loads((NPM / PEERS["transformers.js"].npm / "package.json").read_text())
    assert package["dependencies"] == verified["dependencies"]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def checkout(tmp_path: Path, installed: dict[str, Path]) -> Iterator[str]:
    """The project's root after `npm install`, served; the address."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    (tmp_path / "examples" / "transformers_js").mkdir(parents=True)
    (tmp_path / "examples" / "browser").symlink_to(EXAMPLES / "browser")
    packages = tmp_path / "examples" / "transformers_js" / "node_modules"
    packages.symlink_to(installed["transformers.js"] / "node_modules")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_the_page_shows_our_greedy_reply(browser: Browser, checkout: str, nano: OnnxModel) -> None:
    page = browser.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(f"{checkout}/examples/browser/")
    button = page.get_by_role("button", name="Send")
    for message in MESSAGES:
        expect(button).to_be_enabled(timeout=60_000)
        page.get_by_label("message").fill(message)
        button.click()
        expect(page.locator("#reply")).to_have_text(our_reply(nano, message), timeout=60_000)
    assert not errors
    assert all(url.startswith((checkout, "blob:", "data:")) for url in requests)
    page.close()
