"""Speed of the static site in a real browser: fp32 against int8, interleaved in one run.

    python benchmarks/pages/browser.py models/nano [--rounds 5] [--threads]

Each of the two sites holds one of the files. In every round both reply to the same new message
with greedy decoding. The figures are those that the page shows, as medians over the rounds. With
--threads the server sends the headers that allow a page to use several threads.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from playwright.sync_api import Page

from benchmarks.pages.served import Isolated, Quiet, chromium, figures, served
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder exported with --quantize int8")
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, len(WORDS) + 1))
    parser.add_argument(
        "--threads", action="store_true", help="allow the page to use several threads"
    )
    options = parser.parse_args()
    if missing := [f for f in FORMATS if not (options.model / VARIANTS[f]).is_file()]:
        parser.error(f"{options.model} lacks {', '.join(missing)}: see python -m export --quantize")
    handler = Isolated if options.threads else Quiet
    with tempfile.TemporaryDirectory() as temporary:
        for name in FORMATS:
            build_with(options.model, name, Path(temporary))
        times = measure(Path(temporary), handler, options.rounds)
    print(f"{'format':8}{'tokens/s':>10}{'first token':>13}")
    for name, values in times.items():
        speed, first = (statistics.median(column) for column in zip(*values))
        print(f"{name:8}{speed:10.0f}{first:10.0f} ms")


def measure(
    folder: Path, handler: type[Quiet], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the figures of each format's replies, which take turns."""
    times = {name: [] for name in FORMATS}
    with served(folder, handler) as address, chromium() as browser:
        pages = {name: browser.new_page() for name in FORMATS}
        for name, page in pages.items():
            page.goto(f"{address}{name}/")
            page.get_by_role("button", name="Download").click()
            line = page.locator(".device:not(:empty)")
            line.wait_for(timeout=120_000)
            print(f"{name}: {line.inner_text()}")
        for word in WORDS[:rounds]:
            for name, page in pages.items():
                times[name].append(ask(page, MESSAGE.format(word)))
    return times


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
    return figures(page)


if __name__ == "__main__":
    main()
