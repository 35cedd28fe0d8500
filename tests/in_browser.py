"""What the tests of the chat view share: a page in a real browser, and what people do on it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_server import ENDLESS, slow_steps
from conftest import NANO, SECONDS
from playwright.sync_api import Browser, Locator, Page, expect

from gptcore.model import load_model
from gptcore.models import Models
from gptcore.page.train.workbench import Workbench

expect.set_options(timeout=1000 * SECONDS)

# Without them each page costs twice the time: Chromium draws two pages for suggestions below the
# address bar that nobody sees, and starts a process for a page that is not opened.
UNSEEN = "WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess"
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    f"--disable-features={UNSEEN}",
]


def open_page(browser: Browser, url: str, width: int = 1280, dark: bool = False, **more) -> Page:
    page = new_tab(browser, url, width, dark, **more)
    expect(page.locator(".gpt")).to_be_visible()
    return page


def new_tab(browser: Browser, url: str, width: int = 1280, dark: bool = False, **more) -> Page:
    """A page in a context of its own, whose `errors` are those of its console."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 860}, color_scheme=scheme, **more
    )
    context.set_default_timeout(1000 * SECONDS)
    page = context.new_page()
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda line: line.type == "error" and page.errors.append(line.text))
    page.goto(url)
    return page


def box(page: Page) -> Locator:
    return page.locator(".composer .box")


def enter(page: Page, room: str) -> None:
    page.locator(".rooms").get_by_role("button", name=room).click()


def say(page: Page, text: str) -> None:
    box(page).fill(text)
    box(page).press("Enter")


def replies(page: Page) -> Locator:
    return page.locator(".message.assistant .body")


def asked(page: Page) -> Locator:
    return page.locator(".message.user .body")


def wait_for_the_end(page: Page) -> None:
    expect(page.locator(".send.halt")).to_be_hidden()
    expect(page.locator(".writing")).to_have_count(0)
    # A message drawn anew has no inner text until it was on the screen (content-visibility: auto).
    page.evaluate(
        "() => new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))"
    )


def talk(page: Page, *texts: str) -> list[str]:
    """Say texts one after the other; all replies."""
    for text in texts:
        n = replies(page).count()
        say(page, text)
        expect(replies(page)).to_have_count(n + 1)
        wait_for_the_end(page)
    return replies(page).all_inner_texts()


def other_tab(page: Page) -> Page:
    """A second tab, which shows the chat that is open in the first one."""
    other = page.context.new_page()
    other.goto(page.url)
    expect(replies(other).first).not_to_be_empty()
    return other


def rename(page: Page, name: str) -> None:
    """Rename the only chat in the list."""
    item = page.locator(".chats li")
    item.hover()
    item.get_by_label("Rename").click()
    item.locator("input").fill(name)
    item.locator("input").press("Enter")


def edit(message: Locator, text: str) -> Locator:
    """Change a message's text, but for the key that keeps it; the box."""
    message.hover()
    message.get_by_label("Edit").click()
    box = message.locator(".editor")
    box.fill(text)
    return box


def delete_last(page: Page) -> None:
    """Delete what was asked last, and its reply."""
    page.locator(".message.user").last.hover()
    page.locator(".message.user").last.get_by_label("Delete this message").click()


def set_number(page: Page, label: str, value: str) -> None:
    field = page.get_by_role("spinbutton", name=label)
    if not field.is_visible():
        page.get_by_text("More settings").click()
    field.fill(value)
    field.press("Tab")


def write_slowly(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replies have 400 tokens and take four seconds: others may end before a tab is open."""
    slow_steps(monkeypatch)
    set_number(page, "Max tokens", "400")
    if not page.locator("#schema").is_visible():
        page.get_by_text("More settings").click()
    page.locator("#schema").fill(json.dumps(ENDLESS))


@contextmanager
def slow_network(page: Page, bytes_per_s: int) -> Iterator[None]:
    """Enter a context in which the page receives no more than this."""
    network = page.context.new_cdp_session(page)
    limits = {"offline": False, "latency": 0, "uploadThroughput": -1}
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", limits | {"downloadThroughput": bytes_per_s})
    yield
    network.send("Network.emulateNetworkConditions", limits | {"downloadThroughput": -1})


def serve_train(serve: Callable[..., str], home: Path) -> str:
    """The address of a page with Train, whose runs and models are in a folder."""
    models = Models(load_model(NANO, threads=1))
    return serve(models, bench=Workbench(home / "runs", home / "models", models.add))


def shop() -> bytes:
    """A table of questions and answers."""
    things = ("lamp", "book", "shirt", "chair", "bottle", "bag")
    colours = ("red", "blue", "green", "old", "new", "cheap", "large", "small")
    pairs = [(c, t) for c in colours for t in things]
    rows = [f"Is the {c} {t} in stock?,The {c} {t} is in stock." for c, t in pairs]
    rows += [f"What does a {c} {t} cost?,A {c} {t} is 20 euros." for c, t in pairs]
    return "\n".join(["question,answer", *rows]).encode()


def press(page: Page, name: str) -> None:
    """Press a button of Train."""
    page.locator(".train").get_by_role("button", name=name, exact=True).click()


def give(page: Page, *files: tuple[str, bytes]) -> None:
    named = [{"name": n, "mimeType": "text/plain", "buffer": content} for n, content in files]
    page.set_input_files("#texts", named)


def status(page: Page) -> Locator:
    return page.locator(".train p[role=status]")
