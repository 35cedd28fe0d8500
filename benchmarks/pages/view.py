"""Speed of the view in a real browser, by the browser's own counters.

    python benchmarks/pages/view.py [--chats 100] [--messages 200] [--rate 500]

The view is mounted on a page whose `ask` sends a given number of tokens a second, in an event every
50 ms as the server does, each with its probability and five alternatives. Measured are the first
paint with many kept chats, a key in a long chat, and how busy the page's main thread is while a
reply comes in.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from playwright.sync_api import Page

from benchmarks.pages.served import chromium, served
from gptcore.bundle import default_model, load_bundle
from gptcore.page.facts import view_facts
from gptcore.page.shell import LOOKS, VIEW

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>view</title>
{looks}<script type="module" src="bench.js"></script></head>
<body><div id="view"></div></body></html>
"""
# Words, code and a list, as replies have them.
SCRIPT = """
import {{ mount }} from "./view/view.js";
const TEXT = "Once upon a time there was a `cat`, who **lived** there.\\n\\n- one\\n- two\\n\\n";
const WORDS = TEXT.split(/(?= )/);
const top = [0, 1, 2, 3, 4].map((id) => [id, " word", -id - 0.1]);
const N = 5 * {rate}; // tokens of a reply
async function ask(request, onEvent, signal) {{
  onEvent({{ prompt: [[1, "Hi"]], begun: "", tokens: [], n_dropped: 0, seed: 1 }});
  const started = performance.now();
  for (let sent = 0; sent < N && !signal.aborted; ) {{
    await new Promise((resolve) => setTimeout(resolve, 50));
    const passed = (performance.now() - started) / 1000;
    const due = Math.min(N, Math.floor({rate} * passed));
    const tokens = [];
    for (; sent < due; sent += 1) tokens.push([sent, WORDS[sent % WORDS.length], -0.5, top]);
    onEvent({{ tokens, text: tokens.map(([, text]) => text).join(""), n_prompt: 1, n_new: sent,
      first_ms: 1, speed: {rate}, finish: sent < N ? null : "length" }});
  }}
}}
const facts = await (await fetch("facts.json")).json();
await mount(document.getElementById("view"), {{ facts, ask }});
document.body.dataset.mounted = "yes";
"""
FILL = """async ([nChats, nMessages]) => {
    const { openStore } = await import(new URL("view/kept/store.js", document.baseURI));
    const { newChat, add, ROOT } = await import(new URL("view/kept/tree.js", document.baseURI));
    const store = await openStore();
    for (let i = 0; i < nChats; i += 1) {
        const chat = newChat({});
        let parent = ROOT;
        for (let k = 0; k < nMessages; k += 1) {
            const role = ["user", "assistant"][k % 2];
            const text = `Message ${k} of **chat** ${i}: a cat, a dog and \\`code\\`.`;
            parent = add(chat, parent, { role, text, finish: "end" }).id;
        }
        await store.save(chat);
        localStorage.setItem("gptcore-last-chat", chat.id);
    }
}"""
KEYS = 2 * "the quick brown fox jumps over the lazy dog"
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chats", type=int, default=100)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--rate", type=int, default=500, help="tokens a second")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        served(Path(temporary)) as url,
        chromium() as browser,
    ):
        write(Path(temporary), options.rate)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        open_view(page, url)
        page.evaluate(FILL, [options.chats, options.messages])
        paints = [first_paint(page, url) for _ in range(5)]
        print(f"first paint, {options.chats} chats of {options.messages} messages: "
              f"{statistics.median(paints):.0f} ms (median of 5)")  # fmt: skip
        page.evaluate(FILL, [1, 500])
        open_view(page, url)
        print(f"a key in a chat of 500 messages: {typing(page):.1f} ms of work")
        share, seconds = streaming(page)
        print(f"{options.rate} tokens/s into a chat of 500 messages: "
              f"{100 * share:.0f} % of a core over {seconds:.1f} s")  # fmt: skip


def write(folder: Path, rate: int) -> None:
    shutil.copytree(VIEW, folder / "view")
    looks = "".join(f'<link rel="stylesheet" href="{path}">' for path in LOOKS)
    (folder / "index.html").write_text(PAGE.format(looks=looks))
    (folder / "bench.js").write_text(SCRIPT.format(rate=rate))
    bundle = load_bundle(default_model())
    facts = view_facts(bundle.facts, bundle.path)
    (folder / "facts.json").write_text(json.dumps(facts))


def open_view(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("body[data-mounted]").wait_for(state="attached")


def first_paint(page: Page, url: str) -> float:
    open_view(page, url)
    page.wait_for_timeout(300)
    return page.evaluate(PAINT)


def typing(page: Page) -> float:
    """Return for how many milliseconds the main thread is busy with a key."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.locator(".box").focus()
    page.wait_for_timeout(500)
    before = busy(session)
    for letter in KEYS:
        page.keyboard.press("Space" if letter == " " else letter)
    page.wait_for_timeout(100)
    return 1000 * (busy(session) - before) / len(KEYS)


def streaming(page: Page) -> tuple[float, float]:
    """Return the share of the time in which the main thread was busy with a reply, and the time."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.locator(".box").fill("Go")
    before, started = busy(session), time.monotonic()
    page.locator(".box").press("Enter")
    page.locator(".send.halt").wait_for(state="visible")
    page.locator(".send.halt").wait_for(state="hidden")
    seconds = time.monotonic() - started
    return (busy(session) - before) / seconds, seconds


def busy(session: object) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(m["value"] for m in metrics if m["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
