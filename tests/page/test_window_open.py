"""The page in a window of its own, by Chromium's application mode on a virtual display."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from export.__main__ import main
from export.ship.desktop import application_name
from gptcore.bundle import default_model, load_bundle


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


def test_applications_of_two_names_are_two() -> None:
    bundle = load_bundle(default_model())
    facts = [replace(bundle.facts, name=name) for name in ("小说", "诗歌", "A b!")]
    names = [application_name(replace(bundle, facts=each)) for each in facts]
    assert len(set(names)) == 3 and names[2] == "a-b"
    assert all(re.fullmatch(r"chat-[0-9a-f]{6}", name) for name in names[:2])


@pytest.mark.peers
def test_an_application_folder_starts_without_python_and_without_a_network(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    assert main(["desktop", str(default_model()), "--out", str(out)]) == 0
    assert sum(p.stat().st_size for p in out.rglob("*") if not p.is_symlink()) < 150e6
    use(str(out / "gptcore-chat"))
