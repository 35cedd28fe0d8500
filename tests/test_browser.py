"""The page in a real browser (Debian's `chromium`, or whatever `chromium` is on the PATH).

Screenshots are left in `screenshots/`, for people to look at.
"""

import re
import time
from collections.abc import Callable

import pytest
from conftest import SCREENSHOTS
from playwright.sync_api import Browser, Locator, Page, expect

from gptcore.bundle import default_model
from gptcore.model import OnnxModel, load_model
from gptcore.page.chat import as_typed

Serve = Callable[[OnnxModel], str]
expect.set_options(timeout=15_000)


def open_page(browser: Browser, url: str, width: int = 1280, dark: bool = False) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 860}, color_scheme="dark" if dark else "light"
    )
    page.set_default_timeout(15_000)
    page.goto(url)
    expect(message_box(page)).to_be_visible()
    return page


def message_box(page: Page) -> Locator:
    return page.get_by_placeholder("Type a message")


def say(page: Page, text: str) -> None:
    message_box(page).fill(text)
    message_box(page).press("Enter")


def replies(page: Page) -> Locator:
    return page.locator(".message.bot")


def status(page: Page) -> Locator:
    return page.locator("#status")


def wait_for_the_end(page: Page) -> None:
    expect(status(page)).to_contain_text(re.compile("complete|max tokens|context is full"))


def set_slider(page: Page, label: str, value: str) -> None:
    number = page.get_by_label(f"number input for {label}")
    number.fill(value)
    number.press("Tab")


def start_a_long_reply(browser: Browser, url: str) -> Page:
    page = open_page(browser, url)
    set_slider(page, "Temperature", "0")
    set_slider(page, "Max tokens", "2000")
    say(page, "Hello!")
    expect(replies(page)).to_have_count(1)
    return page


def test_a_conversation(browser: Browser, serve: Serve) -> None:
    """Send, retry, edit, undo and clear, with the model that ships; nothing leaves the host."""
    url = serve(load_model(default_model()))
    page = open_page(browser, url)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.reload()

    page.get_by_text("Hello! Who are you?").click()  # an example
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(1)
    say(page, "My name is Ada.")
    expect(replies(page)).to_have_count(2)
    wait_for_the_end(page)
    say(page, "What is my name?")
    expect(replies(page)).to_have_count(3)
    wait_for_the_end(page)
    expect(status(page)).to_contain_text("tokens/s")
    page.screenshot(path=SCREENSHOTS / "light.png")

    page.get_by_label("Retry").last.click()
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(3)

    page.get_by_label("Edit").first.click()
    edited = page.locator(".message.user textarea, textarea.edit-textarea").first
    edited.fill("Tell me a joke.")
    page.get_by_label("Submit").first.click()
    expect(replies(page)).to_have_count(1)
    wait_for_the_end(page)
    expect(page.locator(".message.user").first).to_contain_text("Tell me a joke.")

    page.get_by_label("Undo").last.click()
    expect(replies(page)).to_have_count(0)
    expect(message_box(page)).to_have_value("Tell me a joke.")

    say(page, "What does <|end|> mean?")
    expect(page.locator(".message.user").last).to_contain_text("<|end|>")
    wait_for_the_end(page)
    page.get_by_label("Clear").click()
    expect(replies(page)).to_have_count(0)
    assert [r for r in requests if not r.startswith((url, "data:", "blob:"))] == []
    page.close()


def test_stop_keeps_the_text_and_ends_the_computation(
    browser: Browser, serve: Serve, slow_model: OnnxModel
) -> None:
    page = start_a_long_reply(browser, serve(slow_model))
    early = replies(page).inner_text()
    expect(status(page)).not_to_contain_text("reading")
    while replies(page).inner_text() == early:  # it streams
        time.sleep(0.05)
    page.locator(".stop-button").click()
    expect(status(page)).to_contain_text("stopped by you", timeout=1_500)
    assert slow_model.engine.n_running == 0
    kept = replies(page).inner_text()
    time.sleep(0.5)
    assert len(kept) > 3
    assert replies(page).inner_text() == kept
    expect(page.locator(".submit-button")).to_be_visible()
    page.close()


def test_clear_during_a_reply_leaves_an_empty_page(
    browser: Browser, serve: Serve, slow_model: OnnxModel
) -> None:
    page = start_a_long_reply(browser, serve(slow_model))
    page.get_by_label("Clear").click()
    expect(replies(page)).to_have_count(0)
    expect(page.locator(".submit-button")).to_be_visible()
    time.sleep(1.0)
    expect(replies(page)).to_have_count(0)
    assert slow_model.engine.n_running == 0
    page.close()


def test_a_closed_tab_ends_the_computation(
    browser: Browser, serve: Serve, slow_model: OnnxModel
) -> None:
    page = start_a_long_reply(browser, serve(slow_model))
    assert slow_model.engine.n_running == 1
    page.close()
    deadline = time.monotonic() + 1.0
    while slow_model.engine.n_running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert slow_model.engine.n_running == 0


def test_sliders_reach_the_model(browser: Browser, serve: Serve) -> None:
    page = open_page(browser, serve(load_model(default_model())))
    set_slider(page, "Max tokens", "3")
    say(page, "Tell me a story about a cat.")
    expect(status(page)).to_contain_text("3 tokens")
    expect(status(page)).to_contain_text("stopped at max tokens")
    page.close()


def test_a_mistake_is_explained_and_loses_nothing(browser: Browser, serve: Serve) -> None:
    page = open_page(browser, serve(load_model(default_model())))
    say(page, "x" * 100_000)
    expect(status(page)).to_contain_text("too long")
    expect(message_box(page)).to_have_value("x" * 100_000)
    expect(replies(page)).to_have_count(0)
    say(page, "Hello!")
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(1)
    page.close()


def test_a_text_is_shown_as_it_was_typed_and_fetches_nothing(
    browser: Browser, serve: Serve
) -> None:
    page = open_page(browser, serve(load_model(default_model())))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    typed = "Is a<b>c</b> <!--d--> <?e?> 1 &lt; 2? <img src=/pixel.png><video src=/v autoplay> Why?"
    say(page, typed)
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(1)
    bubble = page.locator(".message.user").first
    assert as_typed(bubble.inner_text()).strip() == typed
    assert not [url for url in requests if url.endswith(("pixel.png", "/v"))]
    page.get_by_label("Undo").last.click()
    expect(message_box(page)).to_have_value(typed)
    page.close()


@pytest.mark.parametrize("text", ["", "x" * 100_000], ids=["empty", "long"])
def test_a_refused_edit_leaves_the_conversation_as_it_was(
    browser: Browser, serve: Serve, text: str
) -> None:
    page = open_page(browser, serve(load_model(default_model())))
    for message in ("My name is Ada.", "What is my name?"):
        say(page, message)
        expect(page.locator(".message.user").last).to_contain_text(message)
        wait_for_the_end(page)
    before = page.locator(".message").all_inner_texts()
    page.get_by_label("Edit").first.click()
    page.locator(".message.user textarea, textarea.edit-textarea").first.fill(text)
    page.get_by_label("Submit").first.click()
    expect(status(page)).to_contain_text("⚠")
    expect(page.locator(".message")).to_have_text(before)
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False), (390, True)])
def test_it_looks_right_small_and_dark(
    browser: Browser, serve: Serve, width: int, dark: bool
) -> None:
    page = open_page(browser, serve(load_model(default_model())), width, dark)
    say(page, "Tell me a story about a cat.")
    wait_for_the_end(page)
    page.screenshot(path=SCREENSHOTS / f"{width}-{'dark' if dark else 'light'}.png", full_page=True)
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0, "the page does not scroll sideways"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness < 100) == dark
    page.close()


def test_a_base_model_is_offered_as_completion(
    browser: Browser, serve: Serve, base_model: OnnxModel
) -> None:
    page = browser.new_page()
    page.goto(serve(base_model))
    expect(page.get_by_text("It was not trained on conversations")).to_be_visible()
    box = page.locator("textarea").first
    box.fill("The salesperson")
    page.locator(".submit-button").click()
    expect(page.locator("#status")).to_contain_text("tokens/s")
    expect(box).to_have_value(re.compile(r"The salesperson.+", re.DOTALL))
    page.screenshot(path=SCREENSHOTS / "completion.png")
    page.close()
