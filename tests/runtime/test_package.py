"""The package as others meet it: its names, what it imports when, and what it asks for."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

import gptcore

HEAVY = {"torch", "gradio", "onnxruntime", "numpy"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def loaded(program: str) -> set[str]:
    """Which of HEAVY are imported after a program."""
    program += "; import sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return HEAVY & set(result.stdout.split())


def test_an_embedder_finds_four_names_and_gptcore_chat_is_the_function() -> None:
    from gptcore.engine.generate import chat, complete
    from gptcore.engine.sampling import Sampling
    from gptcore.model import load_model

    assert (gptcore.chat, gptcore.complete) == (chat, complete)
    assert (gptcore.load_model, gptcore.Sampling) == (load_model, Sampling)
    names = {"chat", "complete", "load_model", "Sampling"}
    assert set(gptcore.__all__) == names <= set(dir(gptcore))
    with pytest.raises(AttributeError, match="module 'gptcore' has no attribute 'Chat'"):
        gptcore.Chat  # noqa: B018
    assert (Path(gptcore.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    ("program", "imported"),
    [
        ("import gptcore; gptcore.__version__", set()),
        ("from gptcore import Sampling", {"numpy"}),
        ("from gptcore import chat", {"numpy"}),
        ("from gptcore import load_model", {"numpy", "onnxruntime"}),
    ],
)
def test_a_name_is_imported_when_it_is_used(program: str, imported: set[str]) -> None:
    assert loaded(program) == imported


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--help", "other commands (python -m gptcore COMMAND --help"),
        ("--version", f"gptcore {gptcore.__version__}"),
        ("chat --help", "--repetition-penalty X"),
        ("--model nowhere", "error: no model folder at nowhere"),
        ("chat nowhere", "error: no model folder at nowhere"),
        ("caht", "did you mean 'chat'?"),
    ],
)
def test_help_and_mistakes_are_answered_before_gradio_and_onnx_runtime_load(
    words: str, said: str
) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "gptcore", *words.split()]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert said in result.stdout + result.stderr
    imported = set(re.findall(r"^import time:.*\| +(\w+)$", result.stderr, re.MULTILINE))
    assert "gptcore" in imported and not imported & (HEAVY - {"numpy"})


def requirement(line: str) -> str:
    """A requirement without its comment and its marker."""
    return re.split(r"[#;]", line)[0].strip()


def test_the_package_asks_for_what_a_checkout_and_a_space_ask_for() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    checkout = {requirement(line) for line in lines} - {""}
    package = set(PROJECT["dependencies"])
    cpu = {name for name in package if name.startswith("onnxruntime")}
    gpu = {name for name in checkout if name.startswith("onnxruntime-gpu")}
    assert checkout - gpu == package, "onnxruntime alone: whoever has no GPU fetches no CUDA"
    assert len(cpu) == len(gpu) == 1
    [extra] = PROJECT["optional-dependencies"]["gpu"]
    assert requirement(extra).replace("[cuda,cudnn]", "") in gpu
    assert cpu.pop().removeprefix("onnxruntime") == gpu.pop().removeprefix("onnxruntime-gpu")


def test_the_extra_has_the_markers_of_the_requirements() -> None:
    [extra] = PROJECT["optional-dependencies"]["gpu"]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("onnxruntime-gpu")]
    assert line.partition(";")[2].replace('"', "'") == extra.partition(";")[2]


def test_nothing_tells_anybody_to_install_the_stranger_that_has_our_name_on_pypi() -> None:
    wrong = re.compile(r"(pip|pipx|uv tool|uv add|uvx) +(install +)?(-\S+ +)*gptcore\b")
    files = [
        path
        for kind in ("py", "md", "toml", "yml", "html", "js", "mjs", "txt", "cff")
        for path in ROOT.rglob(f"*.{kind}")
        if path.is_file()
        and not {"node_modules", ".venv", "venv", "runs"} & set(path.relative_to(ROOT).parts)
    ]
    assert len(files) > 100
    for path in files:
        assert not wrong.search(path.read_text(encoding="utf-8", errors="replace")), path
