"""The wheel that `pip install .` builds: what it holds. `.ci/runtime` installs and runs it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from gptcore import __version__

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
    view = files(ROOT / "gptcore" / "page" / "view", "*")
    assert len(view) > 15
    assert held == code | model | view | {"gptcore/py.typed"}
    assert {f"{info}METADATA", f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names
