"""The page in a window of its own, by Chromium's application mode on a virtual display."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from export.__main__ import main
from gptcore.bundle import default_model


def use(*words: str) -> None:
    """Do what a person does with a window; see the file that does it."""
    script = ROOT / "benchmarks" / "pages" / "window.py"
    # With ports of its own: else a page of another test could take the window's between two starts.
    may = subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0
    command = [sys.executable, script, "--starts", "2", *["--offline"] * may, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one can type after" in done.stdout


@pytest.mark.slow
def test_a_window_keeps_its_chats_and_ends_when_it_is_closed() -> None:
    use(sys.executable, "-m", "gptcore", "--window")


@pytest.mark.peers
def test_an_application_folder_starts_without_python_and_without_a_network(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    assert main(["desktop", str(default_model()), "--out", str(out)]) == 0
    assert sum(p.stat().st_size for p in out.rglob("*") if not p.is_symlink()) < 150e6
    use(str(out / "gptcore-chat"))
