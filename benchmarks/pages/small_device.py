"""Speed and memory of the static site on a small device: a narrow screen, a slow processor.

    python benchmarks/pages/small_device.py models/default [--slower 4] [--single-file]

The page, 360 pixels wide, answers the same questions again and again in one chat. After every tenth
reply, garbage is collected, and the heaps of the page and of its worker and the memory of the
page's process are printed. Chromium's own throttling slows a page but not its worker, where the
model runs; so processes of pages are stopped for a part of each 40 milliseconds. Needs Linux.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from playwright.sync_api import Browser, Page

from benchmarks.memory import resident
from benchmarks.pages.served import chromium, figures, served
from export.ship.single import build_single_file
from export.ship.web import build_site
from gptcore.bundle import load_bundle

SCREEN = {"width": 360, "height": 740}
PERIOD = 0.04  # seconds
EVERY = 10  # replies
LONG = 300_000  # milliseconds
QUESTIONS = (
    "Hello! Who are you?",
    "My name is Ada.",
    "Tell me a story about a cat.",
    "What is the capital of France?",
    "What is my name?",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--replies", type=int, default=50)
    parser.add_argument("--slower", type=float, default=4, help="(default: 4 times)")
    parser.add_argument("--single-file", action="store_true", help="open one file, with no server")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        opened_at(options.model, Path(temporary), options.single_file) as address,
        chromium() as browser,
    ):
        page = browser.new_page(viewport=SCREEN)
        memory = Memory(page)
        page.goto(address)
        page.locator(".composer").wait_for()
        processes = page_processes(browser)
        with slowed(processes, options.slower):
            opened = time.perf_counter()
            if options.single_file:
                page.reload()
            else:
                page.get_by_role("button", name="Download").click()
            page.locator(".device:not(:empty)").wait_for(state="attached", timeout=LONG)
            print(page.locator(".device").text_content())
            print(f"ready after {time.perf_counter() - opened:.1f} s")
            measure(page, processes, memory, options.replies)


def measure(page: Page, processes: list[int], memory: "Memory", n_replies: int) -> None:
    print(f"{'replies':>8}{'page MB':>10}{'worker MB':>11}{'process MB':>12}")
    found = []
    for n in range(1, n_replies + 1):
        found.append(ask(page, QUESTIONS[n % len(QUESTIONS)], n))
        if n % EVERY == 0:
            page_mb, worker_mb = memory.heaps()
            process_mb = max(map(resident, processes)) / 1e6
            print(f"{n:8}{page_mb:10.1f}{worker_mb:11.1f}{process_mb:12.0f}", flush=True)
    speed, first = (statistics.median(column) for column in zip(*found))
    longest = max(first for _, first in found)
    print(
        f"medians: {speed:.0f} tokens/s, first token after {first:.0f} ms (at most {longest:.0f})"
    )


@contextmanager
def opened_at(model: Path, folder: Path, is_single: bool) -> Iterator[str]:
    """Build the site, or the one file, and give its address."""
    if is_single:
        build_single_file(load_bundle(model), folder / "chat.html")
        yield (folder / "chat.html").as_uri()
        return
    build_site(load_bundle(model), folder / "site")
    with served(folder / "site") as address:
        yield address


def page_processes(browser: Browser) -> list[int]:
    """Return the processes of pages: the page's own, a service worker's, and one in reserve."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return [process["id"] for process in found if process["type"] == "renderer"]


@contextmanager
def slowed(processes: list[int], times: float) -> Iterator[None]:
    """Let processes run for one part in `times` of the time."""
    ended = Event()

    def send(number: signal.Signals) -> None:
        for process in processes:
            os.kill(process, number)

    def turn() -> None:
        while not ended.wait(PERIOD / times):
            send(signal.SIGSTOP)
            time.sleep(PERIOD - PERIOD / times)
            send(signal.SIGCONT)

    thread = Thread(target=turn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Memory:
    """The heaps of a page and of its worker, which Chrome's DevTools protocol tells."""

    def __init__(self, page: Page):
        self.page, self.session = page, page.context.new_cdp_session(page)
        self.worker, self.answers = "", {}
        self.session.on("Target.attachedToTarget", self.attached)
        self.session.on("Target.receivedMessageFromTarget", self.received)
        self.session.send(
            "Target.setAutoAttach",
            {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False},
        )

    def attached(self, event: dict) -> None:
        if event["targetInfo"]["type"] == "worker":
            self.worker = event["sessionId"]

    def received(self, event: dict) -> None:
        answer = json.loads(event["message"])
        self.answers[answer.get("id")] = answer.get("result", answer)

    def ask_worker(self, method: str) -> dict:
        self.answers.clear()
        message = json.dumps({"id": 1, "method": method})
        words = {"sessionId": self.worker, "message": message}
        self.session.send("Target.sendMessageToTarget", words)
        while 1 not in self.answers:
            self.page.wait_for_timeout(20)
        return self.answers[1]

    def heaps(self) -> tuple[float, float]:
        """Return megabytes of the page's heap and of the worker's, with its arrays."""
        found = []
        for ask in (self.session.send, self.ask_worker):
            ask("HeapProfiler.collectGarbage")
            usage = ask("Runtime.getHeapUsage")
            found.append((usage["usedSize"] + usage["backingStorageSize"]) / 1e6)
        return found[0], found[1]


def ask(page: Page, message: str, number: int) -> tuple[float, float]:
    """Return tokens per second, and milliseconds to the first token, of the reply of a number."""
    page.locator(".composer .box").fill(message)
    page.locator(".composer .box").press("Enter")
    page.locator(".message.assistant").nth(number - 1).wait_for(state="attached", timeout=LONG)
    page.locator(".send.halt").wait_for(state="hidden", timeout=LONG)
    return figures(page)


if __name__ == "__main__":
    main()
