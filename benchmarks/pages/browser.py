"""Speed of the static site in a real browser: fp32 against int8, interleaved in one run.

    python benchmarks/pages/browser.py models/nano [--rounds 5] [--threads]

Each of the two sites holds one of the files. In every round both reply to the same new message
with greedy decoding. The figures are those that the page shows, as medians over the rounds. With
--threads the server sends the headers that allow a page to use several threads.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from playwright.sync_api import Page, sync_playwright

from export.ship.web import build_site
from gptcore.bundle import VARIANTS, load_bundle, write_facts

FORMATS = ("fp32", "int8")
MESSAGE = "{}! Tell me a story about a cat."
WORDS = (
    "Hi",
    "Hello",
    "Hey",
    "Please",
    "Well",
    "Now",
    "So",
    "Oh",
)  # different beginnings, so that no prompt is cached
FIGURES = re.compile(r"([\d.,]+) tokens/s · first token after ([\d.,]+) ms")


class Handler(SimpleHTTPRequestHandler):
    isolated = False

    def end_headers(self) -> None:
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *words: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize int8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", action="store_true", help="allow the page to use several threads"
    )
    options = parser.parse_args()
    if missing := [f for f in FORMATS if not (options.model / VARIANTS[f]).is_file()]:
        parser.error(f"{options.model} lacks {', '.join(missing)}: see python -m export --quantize")
    Handler.isolated = options.threads
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        for name in FORMATS:
            build_with(options.model, name, Path(temporary))
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=temporary))
        Thread(target=server.serve_forever, daemon=True).start()
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=arguments
        )
        pages = {name: browser.new_page() for name in FORMATS}
        for name, page in pages.items():
            page.goto(f"http://127.0.0.1:{server.server_port}/{name}/")
            page.get_by_role("button", name="Download").click()
            line = page.locator(".device:not(:empty)")
            line.wait_for(timeout=120_000)
            print(f"{name}: {line.inner_text()}")
        times = {name: [] for name in FORMATS}
        for _, word in zip(range(options.rounds), WORDS):
            for name, page in pages.items():
                times[name].append(ask(page, MESSAGE.format(word)))
        browser.close()
    print(f"{'format':8}{'tokens/s':>10}{'first token':>13}")
    for name, values in times.items():
        speed, first = (statistics.median(column) for column in zip(*values))
        print(f"{name:8}{speed:10.0f}{first:10.0f} ms")


def build_with(model: Path, name: str, folder: Path) -> None:
    """Build a site that has the model in one number format only."""
    copy = shutil.copytree(model, folder / f"model-{name}")
    for other, file in VARIANTS.items():
        if other not in ("fp32", name):
            (copy / file).unlink(missing_ok=True)
    write_facts(copy, load_bundle(model).facts)
    build_site(load_bundle(copy), folder / name)


def ask(page: Page, message: str) -> tuple[float, float]:
    """Return tokens per second, and milliseconds to the first token, of one reply."""
    page.bring_to_front()
    page.get_by_role("button", name="New chat").first.click()
    page.get_by_role("spinbutton", name="Temperature").fill("0")
    page.get_by_role("textbox", name="Message").fill(message)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_role("button", name="Stop").wait_for(state="hidden", timeout=120_000)
    told = FIGURES.search(page.locator(".figures details span").text_content() or "")
    if not told:
        raise SystemExit(f"the page says: {page.locator('.notice').inner_text()}")
    speed, first = (float(figure.replace(",", "")) for figure in told.groups())
    return speed, first


if __name__ == "__main__":
    main()
