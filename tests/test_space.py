"""The folder for a Hugging Face Space: started as a Space starts it, and what it holds."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Refused
from gradio_client import Client

from export.__main__ import main
from gptcore.bundle import load_bundle, load_translation_bundle
from gptcore.gradio.zero_gpu import declare_gpu_function

ROOT = Path(__file__).parent.parent
DEFAULT = ROOT / "models" / "default"


@pytest.fixture(scope="module")
def space(translation_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Space with both kinds of models."""
    out = tmp_path_factory.mktemp("spaces") / "space"
    words = ["space", DEFAULT, "--out", out, "--translate", translation_folder]
    assert main([str(word) for word in words]) == 0
    return out


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def started(space: Path) -> Iterator[Client]:
    """`python app.py` in the folder, with what a Space has in its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"GRADIO_SERVER_NAME": "0.0.0.0", "PORT": str(port), "SPACE_ID": "ada/chat"}
    command = [sys.executable, "app.py"]
    process = subprocess.Popen(command, cwd=space, env=environment)
    try:
        yield connected(process, port)
    finally:
        process.terminate()
        process.wait(timeout=30)


def connected(process: subprocess.Popen, port: int) -> Client:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "the page ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return Client(f"http://127.0.0.1:{port}", verbose=False)
    raise AssertionError("the page did not start")


@pytest.mark.slow
def test_a_space_answers_and_translates(space: Path) -> None:
    with started(space) as client:
        reply = client.predict("Hello!", temperature=0, api_name="/chat")
        assert reply.lower().startswith(("hello", "hi", "hey"))
        assert client.predict("跑猫红二。", api_name="/translate")


def test_it_holds_what_the_page_reads_and_nothing_else(space: Path) -> None:
    models = {name.removeprefix("models/default/") for name in names(space / "models" / "default")}
    assert models == {
        "gptcore.json", "tokenizer.tiktoken", "onnx/inspect.onnx", "onnx/serving_int8.onnx",
        "onnx/model_quantized.onnx", "onnx/model_int8.onnx", "onnx/untrained.onnx",
    }  # fmt: skip
    assert load_bundle(space / "models" / "default").facts.parity
    assert load_translation_bundle(space / "models" / "translate").source_tokenizer
    found = names(space)
    assert {"app.py", "LICENSE"} <= found
    assert {"gptcore/gradio/endpoints.py", "gptcore/engine/generate.py"} <= found
    unwanted = re.compile(r"/nn/|__pycache__|safetensors|^(training|export|tests)/")
    assert not [name for name in found if unwanted.search(name) and ".pyc" not in name]


def test_the_hub_is_told_which_gradio_and_that_is_the_one_of_the_requirements(space: Path) -> None:
    front_matter = (space / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    facts = dict(line.split(": ", 1) for line in front_matter.splitlines())
    assert facts["sdk"] == "gradio"
    assert facts["sdk_version"] == version("gradio")
    assert facts["title"] == '"gptcore chat"'
    assert facts["python_version"] == '"3.12"', "without quotes YAML could read a number"
    assert len(facts["short_description"]) <= 60, "the Hub refuses a longer one"
    assert (space / facts["app_file"]).is_file()
    ours = (ROOT / "requirements.txt").read_text().splitlines()
    theirs = (space / "requirements.txt").read_text().splitlines()
    changed = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert [b for _, b in changed] == [f"gradio=={version('gradio')}"]


def test_large_files_go_to_lfs(space: Path) -> None:
    patterns = [line.split()[0] for line in (space / ".gitattributes").read_text().splitlines()]
    large = [path for path in space.rglob("*") if path.is_file() and path.stat().st_size > 1e6]
    assert large and all(any(path.match(pattern) for pattern in patterns) for path in large)


def test_a_space_is_written_again_but_nothing_of_yours_is_deleted(
    tmp_path: Path, refused: Refused
) -> None:
    out = tmp_path / "space"
    words = ["space", DEFAULT, "--out", out]
    for _ in range(2):
        assert main([str(word) for word in words]) == 0
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in refused(main, *words)
    (out / "notes.txt").unlink()
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("mine")
    assert "HEAD" in refused(main, *words)
    (tmp_path / "app.py").write_text("mine")
    assert "is not a Space" in refused(main, "space", DEFAULT, "--out", tmp_path)
    assert "translation model" in refused(main, *words, "--translate", DEFAULT)


def test_zero_gpu_finds_a_function_where_its_package_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=found.append))
    declare_gpu_function()
    assert len(found) == 1 and callable(found[0])
    monkeypatch.setitem(sys.modules, "spaces", None)  # as if it were not installed
    declare_gpu_function()
    assert len(found) == 1
