"""The page in a window of its own, by Chromium's application mode on a virtual display."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from in_browser import asked, box, replies, talk
from playwright.sync_api import Browser, Page, expect

from export.__main__ import main
from gptcore.bundle import default_model

ROOT = Path(__file__).parent.parent
SECONDS = 60
QUESTION = "What is the capital of France?"
LINK = "https://example.org/there"
# Stands for the system's browser, and writes down what it is asked to open.
SYSTEM = '#!/bin/sh\necho "$1" >> "$OPENED"\n'


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    xvfb = shutil.which("Xvfb")
    assert xvfb, "this test needs a display: apt-get install xvfb"
    read, write = os.pipe()
    words = [xvfb, "-displayfd", str(write), "-screen", "0", "1400x1000x24", "-nolisten", "tcp"]
    with subprocess.Popen(words, pass_fds=[write], stderr=subprocess.DEVNULL) as process:
        os.close(write)
        with os.fdopen(read) as told:
            yield f":{told.readline().strip()}"
        process.terminate()


class Program:
    """A program with a window, in an empty home; it is started again and again."""

    def __init__(self, words: list[str], home: Path, display: str):
        self.words, self.home = words, home
        home.mkdir()
        (home / "system").write_text(SYSTEM)
        (home / "system").chmod(0o755)
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "DISPLAY": display,
            "BROWSER": str(home / "system"),
            "OPENED": str(home / "opened"),
            # As root, Chromium has no sandbox.
            "GPTCORE_BROWSER": "chromium --no-sandbox --remote-debugging-port=0",
        }

    def run(self) -> subprocess.CompletedProcess:
        return subprocess.run(self.words, **self.how, timeout=SECONDS)

    @property
    def how(self) -> dict:
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return {"env": self.environment, "cwd": ROOT, **pipe}

    @contextmanager
    def opened(self, browser: Browser) -> Iterator[Page]:
        """Its window's page. At the end the window is closed, and the program must end."""
        for old in self.home.rglob("DevToolsActivePort"):
            old.unlink()
        process = subprocess.Popen(self.words, **self.how)
        try:
            yield self.page(browser, process)
        except BaseException:
            process.terminate()
            raise
        out, error = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, out + error

    def page(self, browser: Browser, process: subprocess.Popen) -> Page:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            ports = [path.read_text().split() for path in self.home.rglob("DevToolsActivePort")]
            if ports and ports[0]:
                address = f"http://127.0.0.1:{ports[0][0]}"
                (context,) = browser.browser_type.connect_over_cdp(address).contexts
                page = context.pages[0] if context.pages else context.wait_for_event("page")
                expect(box(page)).to_be_visible()
                return page
            time.sleep(0.05)
        raise AssertionError("the window did not open")


def use(program: Program, browser: Browser) -> None:
    """What a person does with a window, in two starts."""
    with program.opened(browser) as page:
        page.evaluate("localStorage.setItem('gptcore.language', 'en')")
        page.get_by_role("spinbutton", name="Temperature").fill("0")
        (reply,) = talk(page, QUESTION)
        assert "Paris" in reply
        again = program.run()
        assert again.returncode == 0 and "the window is open already: http://loc" in again.stdout
        page.evaluate("""(link) => {
            const there = Object.assign(document.createElement("a"), { href: link, target: "_blank" });
            document.body.append(there);
            there.click();
        }""", LINK)  # fmt: skip
        opened = program.home / "opened"
        deadline = time.monotonic() + SECONDS
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert opened.read_text() == f"{LINK}\n"
        for window in page.context.pages:
            window.close()
    with program.opened(browser) as page:
        page.locator(".chats").get_by_text(QUESTION).first.click()
        expect(asked(page)).to_have_text([QUESTION])
        assert replies(page).all_inner_texts() == [reply]
        page.close()


@pytest.mark.slow
def test_a_window_keeps_its_chats_and_ends_when_it_is_closed(
    tmp_path: Path, display: str, browser: Browser
) -> None:
    words = [sys.executable, "-m", "gptcore", "--window"]
    use(Program(words, tmp_path / "home", display), browser)


@pytest.mark.peers
def test_an_application_folder_starts_without_python_and_without_a_network(
    tmp_path: Path, display: str, browser: Browser
) -> None:
    out = tmp_path / "dist"
    assert main(["desktop", str(default_model()), "--out", str(out)]) == 0
    assert sum(p.stat().st_size for p in out.rglob("*") if not p.is_symlink()) < 150e6
    use(Program([str(out / "gptcore-chat")], tmp_path / "home", display), browser)
