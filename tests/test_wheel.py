"""The wheel that `pip install .` builds: what it holds, and that it works where it is installed."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from gptcore import __version__

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*words: object, **options: object) -> str:
    command = [str(word) for word in words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, ROOT)
    [path] = out.iterdir()
    return path


def files(folder: Path, pattern: str) -> set[str]:
    found = (path.relative_to(ROOT) for path in folder.rglob(pattern) if path.is_file())
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def test_it_holds_the_runtime_and_the_model_that_ships_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"gptcore-{__version__}.dist-info/"
    code = files(ROOT / "gptcore", "*.py") - files(ROOT / "gptcore" / "nn", "*.py")
    model = {f"gptcore/{name}" for name in files(ROOT / "models" / "default", "*")}
    assert len(code) > 20 and len(model) > 10
    held = {name for name in names if not name.startswith(info)}
    assert held == code | model | {"gptcore/py.typed"}
    assert {f"{info}METADATA", f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names


def test_where_it_is_installed_the_command_answers_without_torch(
    wheel: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    run(programs / "python", "-m", "pip", "install", "--no-compile", "-q", wheel)
    assert run(programs / "gptcore", "--version", cwd=tmp_path) == f"gptcore {__version__}\n"
    said = run(
        *(programs / "gptcore", "chat", "--temperature", "0"),
        input="My name is Ada.\nWhat is my name?\n",
        cwd=tmp_path,
    )
    assert "gptcore chat: 6,491,808 parameters on " in said
    assert "Ada" in said.strip().split("\n\n")[-1]
    listed = run(programs / "python", "-m", "pip", "list", "--format", "freeze").lower()
    installed = {line.partition("==")[0] for line in listed.splitlines()}
    assert {"gptcore", "gradio", "onnxruntime"} <= installed
    assert not {"torch", "onnx", "onnxruntime-gpu"} & installed
