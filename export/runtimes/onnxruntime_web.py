"""onnxruntime-web, WebAssembly in Chromium: npm/onnxruntime_web.html generates."""

import json
import shutil
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from export.runtimes.program import FILE, Generate, serve

PROGRAMS = Path(__file__).with_name("npm")  # this page, and its loop
PACKAGE = Path("node_modules") / "onnxruntime-web"  # in the working directory
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]


class Handler(SimpleHTTPRequestHandler):
    """Serves the page and its loop, the runtime at `/runtime/`, the model folder at `/model/`."""

    def translate_path(self, path: str) -> str:
        if path in ("/", "/greedy.mjs"):
            return str(PROGRAMS / (path[1:] or "onnxruntime_web.html"))
        if path.startswith("/runtime/"):
            return str(PACKAGE / "dist" / Path(path).name)
        return super().translate_path(path.removeprefix("/model"))

    def end_headers(self) -> None:
        # Browsers allow threads only to a page that is isolated from other origins.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


def load(browser: Browser, folder: Path, threads: int) -> tuple[str, Generate]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    page.evaluate("threads => load(threads)", threads)

    def generate(prompts, n, tick):
        start = time.perf_counter()
        made = page.evaluate("([prompts, n]) => generate(prompts, n)", [prompts, n])
        for seconds in made["times"]:
            tick(start + seconds)
        return made["ids"]

    return FILE, generate


def main() -> None:
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert chromium, "install chromium"
    version = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["version"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        serve("onnxruntime-web", version, partial(load, browser))


if __name__ == "__main__":
    main()
