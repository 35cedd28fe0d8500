"""A folder as a browser sees it: a silent server, Chromium, and the figures that a page shows."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser, Page, sync_playwright

FIGURES = re.compile(r"([\d.,]+) tokens/s · first token after ([\d.,]+) ms")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


class Isolated(Quiet):
    """With the headers that allow a page to use several threads."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


@contextmanager
def served(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """Serve a folder until the block ends; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


def figures(page: Page) -> tuple[float, float]:
    """Return tokens per second, and milliseconds to the first token, of the last reply."""
    told = FIGURES.search(page.locator(".figures details span").text_content() or "")
    if not told:
        raise SystemExit(f"the page says: {page.locator('.notice').inner_text()}")
    speed, first = (float(figure.replace(",", "")) for figure in told.groups())
    return speed, first
