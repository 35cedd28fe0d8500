"""A base model's page in a real browser: it continues a text in place."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import pytest
from conftest import SCREENSHOTS, Visit
from in_browser import set_number
from playwright.sync_api import Locator, Page, expect

from gptcore.engine.generate import complete
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel


@pytest.fixture(scope="module")
def url(base_model: OnnxModel, serve: Callable[..., str]) -> str:
    return serve(base_model)


def text(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Text", exact=True)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def expected(model: OnnxModel, begin: str, n: int) -> str:
    pieces = complete(model, begin, Sampling(temperature=0), n)
    return begin + "".join(piece.text for piece in pieces)


def test_a_text_is_continued_undone_and_tried_again(page: Page, base_model: OnnxModel) -> None:
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "12")
    once = expected(base_model, "The salesperson", 12)
    text(page).fill("The salesperson")
    press(page, "Continue")
    expect(text(page)).to_have_value(once)
    expect(page.locator("mark.written")).to_have_text(once.removeprefix("The salesperson"))
    press(page, "Tint by probability")
    expect(page.locator("mark.written span").first).to_be_attached()
    press(page, "Undo")
    expect(text(page)).to_have_value("The salesperson")
    expect(page.get_by_role("button", name="Retry")).to_be_disabled()
    text(page).press("Shift+Enter")
    expect(text(page)).to_have_value(once)
    press(page, "Retry")
    expect(page.get_by_role("button", name="Retry")).to_be_enabled()
    expect(text(page)).to_have_value(once)
    text(page).press("End")
    text(page).press("Enter")  # a new line
    expect(text(page)).to_have_value(f"{once}\n")
    page.reload()
    expect(text(page)).to_have_value(f"{once}\n")
    expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value("12")
    press(page, "Clear")
    expect(text(page)).to_have_value("")
    text(page).press("x")  # a key that slipped
    press(page, "Undo")
    expect(text(page)).to_have_value(f"{once}\n")
    press(page, "Undo")
    expect(text(page)).to_have_value("x")
    press(page, "Undo")
    expect(text(page)).to_have_value(f"{once}\n")
    page.screenshot(path=SCREENSHOTS / "text.png")


def test_a_try_that_fails_loses_nothing(page: Page) -> None:
    set_number(page, "Max tokens", "12")
    text(page).fill("The salesperson")
    press(page, "Continue")
    expect(page.get_by_role("button", name="Retry")).to_be_enabled()
    written = text(page).input_value()
    page.context.set_offline(True)
    press(page, "Retry")
    expect(page.locator(".notice")).to_contain_text("cannot be reached")
    expect(text(page)).to_have_value(written)
    page.context.set_offline(False)
    page.errors.clear()  # the browser's own line about the network
    press(page, "Undo")
    expect(text(page)).to_have_value("The salesperson")


def test_a_text_may_be_longer_than_the_context(page: Page, base_model: OnnxModel) -> None:
    size = base_model.config.block_size
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", str(size + 20))
    text(page).fill("word " * 300)
    press(page, "Continue")
    expect(page.locator(".notice")).to_contain_text(f"longer than {size} tokens")
    press(page, "中文")
    expect(page.get_by_role("button", name="续写文本")).to_have_count(0)
    expect(page.get_by_role("button", name="继续", exact=True)).to_be_enabled()


def test_what_is_typed_in_two_tabs_is_kept_of_both(page: Page) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    for tab in (page, other):  # one of them has the focus, as with people; else both would
        devtools = page.context.new_cdp_session(tab)
        devtools.send("Emulation.setFocusEmulationEnabled", {"enabled": False})
    page.bring_to_front()
    text(page).fill("Once upon a time")
    expect(text(other)).to_have_value("Once upon a time")
    other.bring_to_front()
    text(other).press("End")
    text(other).press("!")
    text(page).evaluate("box => box.value += '?'")
    text(page).evaluate("box => box.dispatchEvent(new Event('input'))")
    text(other).press("!")
    expect(text(other)).to_have_value(
        "Once upon a time!!"
    )  # nothing is taken from under the fingers
    expect(text(page)).to_have_value("Once upon a time!!")
    text(other).press("Backspace")
    expect(text(page)).to_have_value("Once upon a time!")
    for tab in (page, other):
        tab.reload()
        expect(text(tab)).to_have_value("Once upon a time!")


def test_a_text_that_the_browser_does_not_keep_is_told_and_stays_on_the_page(page: Page) -> None:
    text(page).fill("Once")
    page.evaluate(
        """() => {
            for (let size = 2 ** 22, n = 0; size >= 1; n += 1)
                try {
                    localStorage.setItem(`full-${n}`, "x".repeat(size));
                } catch {
                    size /= 2;
                }
        }"""
    )
    text(page).fill("Once upon a time")
    expect(page.locator(".notice.error")).to_contain_text("this text is not kept")
    press(page, "中文")
    expect(page.get_by_role("textbox", name="文本", exact=True)).to_have_value("Once upon a time")


def test_stop_keeps_what_was_written(
    visit: Visit, serve: Callable[..., str], slow_model: OnnxModel
) -> None:
    base = copy(slow_model)
    base.bundle = replace(base.bundle, facts=replace(base.bundle.facts, chat=False))
    page = visit(serve(base))
    set_number(page, "Temperature", "0")  # it never ends by itself
    set_number(page, "Max tokens", "2000")
    text(page).fill("Once")
    press(page, "Continue")
    expect(text(page)).not_to_have_value("Once")
    press(page, "Stop")
    expect(page.get_by_role("button", name="Continue", exact=True)).to_be_enabled()
    expect(page.locator(".finish")).to_have_text("Stopped by you.")
    assert len(text(page).input_value()) > len("Once")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_it_looks_right_small_and_dark(visit: Visit, url: str, width: int, dark: bool) -> None:
    page = visit(url, width, dark)
    text(page).fill("Once upon a time there was a cat.\n\n" * 3)
    press(page, "Continue")
    expect(page.get_by_role("button", name="Undo")).to_be_enabled(timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    page.screenshot(path=SCREENSHOTS / f"text-{width}-{'dark' if dark else 'light'}.png")
