"""A window used as a person does, on a virtual display in an empty home, and how fast it is there.

    python benchmarks/pages/window.py [--starts 3] [--offline] dist/gptcore-chat
    python benchmarks/pages/window.py python -m gptcore --window

It is talked with, started a second time while it is open, asked to follow a link, closed, and
started again: the chats must still be there. The time is that from the start of the program until
one can type. With --offline all of it is in a network namespace without any network.
"""

import argparse
import errno
import fcntl
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserType, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60
QUESTION = "What is the capital of France?"
LINK = "https://example.org/there"
# Stands for the system's browser, and writes down what it is asked to open.
SYSTEM = '#!/bin/sh\necho "$1" >> "$OPENED"\n'
FOLLOW = """(link) => {
    const there = document.createElement("a");
    document.body.append(Object.assign(there, { href: link, target: "_blank" }));
    there.click();
}"""
SET_FLAGS, UP = 0x8914, 1  # of an interface: SIOCSIFFLAGS and IFF_UP of Linux


class Program:
    """A program with a window, in an empty home; it is started again and again."""

    def __init__(self, words: list[str], home: Path, display: str):
        self.words, self.home, self.opened = words, home, home / "opened"
        self.seconds: list[float] = []  # until one could type
        (home / "system").write_text(SYSTEM)
        (home / "system").chmod(0o755)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DISPLAY": display,
            "BROWSER": str(home / "system"),
            "OPENED": str(self.opened),
            # As root, Chromium has no sandbox.
            "GPTCORE_BROWSER": "chromium --no-sandbox --remote-debugging-port=0",
        }

    def begin(self) -> subprocess.Popen:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.words, env=self.environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True
        )

    @contextmanager
    def window(self, browser: BrowserType) -> Iterator[Page]:
        """The page in its window. At the end the window is closed, and the program must end."""
        for old in self.home.rglob("DevToolsActivePort"):
            old.unlink()
        started = time.perf_counter()
        process = self.begin()
        try:
            page = self.page(browser, process)
            self.seconds.append(time.perf_counter() - started)
            yield page
            for window in page.context.pages:
                window.close()
            out, error = process.communicate(timeout=SECONDS)
        except BaseException:
            process.terminate()
            raise
        assert process.returncode == 0, out + error

    def page(self, browser: BrowserType, process: subprocess.Popen) -> Page:
        def port() -> str:
            assert process.poll() is None, process.communicate()
            found = [path.read_text().split() for path in self.home.rglob("DevToolsActivePort")]
            return found[0][0] if found and found[0] else ""

        address = f"http://127.0.0.1:{wait_for(port)}"
        (context,) = browser.connect_over_cdp(address, timeout=1000 * SECONDS).contexts
        context.set_default_timeout(1000 * SECONDS)
        page = context.pages[0] if context.pages else context.wait_for_event("page")
        expect(page.locator(".composer .box")).to_be_visible(timeout=1000 * SECONDS)
        return page


def wait_for(found: Callable[[], str]) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError("the window did not come")


def use(program: Program, browser: BrowserType, starts: int, screenshot: Path | None) -> None:
    """What a person does with a window in two starts, and more starts for their time."""
    with program.window(browser) as page:
        reply = ask(page)
        if screenshot:
            page.screenshot(path=screenshot)
        with page.context.expect_page():  # one more window of the same program
            again = program.begin()
            out, error = again.communicate(timeout=SECONDS)
        assert again.returncode == 0 and "is open already: http://localhost:" in out, out + error
        page.evaluate(FOLLOW, LINK)
        wait_for(lambda: program.opened.read_text() if program.opened.exists() else "")
        assert program.opened.read_text() == f"{LINK}\n"
    for _ in range(starts - 1):
        with program.window(browser) as page:
            page.locator(".chats").get_by_text(QUESTION).first.click()
            expect(page.locator(".message.user .body")).to_have_text([QUESTION])
            expect(page.locator(".message.assistant .body")).to_have_text([reply])


def ask(page: Page) -> str:
    """Ask for the capital of France; the reply, which must have it."""
    page.get_by_role("spinbutton").first.fill("0")  # the temperature
    box = page.locator(".composer .box")
    box.fill(QUESTION)
    box.press("Enter")
    body = page.locator(".message.assistant .body")
    expect(body).to_contain_text("Paris", timeout=1000 * SECONDS)
    expect(page.locator(".writing")).to_have_count(0)
    # A message that was not yet on the screen has no inner text (content-visibility: auto).
    return body.text_content() or ""


@contextmanager
def display() -> Iterator[str]:
    """A virtual display; its name."""
    xvfb = shutil.which("Xvfb")
    assert xvfb, "this needs a display: apt-get install xvfb"
    read, write = os.pipe()
    words = [xvfb, "-displayfd", str(write), "-screen", "0", "1400x1000x24", "-nolisten", "tcp"]
    with subprocess.Popen(words, pass_fds=[write], stderr=subprocess.DEVNULL) as process:
        os.close(write)
        try:
            with os.fdopen(read) as told:
                yield f":{told.readline().strip()}"
        finally:
            process.terminate()


def be_offline() -> None:
    """Leave a namespace of the network nothing but this machine's own address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP))
    with socket.socket() as outwards:
        assert outwards.connect_ex(("192.0.2.1", 80)) == errno.ENETUNREACH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.offline and "GPTCORE_OFFLINE" not in os.environ:
        os.environ["GPTCORE_OFFLINE"] = "1"
        os.execvp("unshare", ["unshare", "-rn", sys.executable, *sys.argv])
    if options.offline:
        be_offline()
    path = Path(options.program[0])
    words = [str(path.absolute()) if path.is_file() else str(path), *options.program[1:]]
    with tempfile.TemporaryDirectory() as home, display() as name, sync_playwright() as playwright:
        program = Program(words, Path(home), name)
        use(program, playwright.chromium, options.starts, options.screenshot)
    shown = ", ".join(f"{seconds:.2f}" for seconds in program.seconds)
    print(f"one can type after {shown} s, median {statistics.median(program.seconds):.2f} s")


if __name__ == "__main__":
    main()
