"""The view by keyboard, by finger, and in languages that are typed in two steps."""

import pytest
from conftest import Visit
from in_browser import (
    asked,
    box,
    edit,
    enter,
    replies,
    say,
    set_number,
    talk,
    wait_for_the_end,
    write_slowly,
)
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

STORY = "Tell me a story about a cat."
# A key that chooses among words: first as Chrome and Firefox tell of it, then as Safari does.
CHOOSE = """(element, key) => {
    for (const of of [{ isComposing: true }, { keyCode: 229 }])
        element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...of }));
}"""


def test_a_key_that_chooses_among_words_sends_closes_and_stops_nothing(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    box(page).fill("にほ")
    box(page).evaluate(CHOOSE, "Enter")
    expect(asked(page)).to_have_count(0)
    box(page).fill("")
    talk(page, "Hello!")
    editor = edit(page.locator(".message.user"), "Half a new mes")
    for key in ("Escape", "Enter"):
        editor.evaluate(CHOOSE, key)
        expect(editor).to_have_value("Half a new mes")
    editor.press("Escape")
    page.locator(".chats li").hover()
    page.locator(".chats li").get_by_label("Rename").click()
    name = page.locator(".chats li input")
    name.fill("日")
    for key in ("Escape", "Enter"):
        name.evaluate(CHOOSE, key)
        expect(name).to_have_value("日")
    name.press("Enter")
    expect(page.locator(".chats li .title")).to_have_text("日")
    write_slowly(page, monkeypatch)
    say(page, STORY)
    expect(replies(page).last).not_to_be_empty()
    box(page).evaluate(CHOOSE, "Escape")
    wait_for_the_end(page)
    expect(page.locator(".finish").last).not_to_contain_text("Stopped by you")


def test_the_focus_stays_with_what_was_pressed(page: Page) -> None:
    talk(page, "Hello!")
    page.get_by_role("button", name="New chat").first.click()
    talk(page, "Good morning!")
    for _ in range(2):
        page.locator(".message.assistant").get_by_label("Regenerate").click()
        wait_for_the_end(page)
    expect(page.locator(".versions")).to_have_text("3/3")
    page.get_by_label("The version before").focus()
    for number in (2, 1):
        page.keyboard.press("Enter")
        expect(page.locator(".versions")).to_have_text(f"{number}/3")
        expect(page.get_by_label("The version before")).to_be_focused()
    edit = page.locator(".message.user").get_by_label("Edit")
    edit.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(edit).to_be_focused()
    first = page.locator(".chats li .title").last
    first.focus()
    page.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-current", "true")
    expect(first).to_be_focused()
    for key, name in (("Escape", "Hello!"), ("Enter", "Greetings")):
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".chats li input").fill("Greetings")
        page.keyboard.press(key)
        expect(page.get_by_role("button", name=name, exact=True)).to_be_focused()
    page.get_by_label("Delete Good morning!").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".chats li .title")).to_have_count(1)
    expect(page.locator(".chats li .title")).to_be_focused()
    enter(page, "Inspect")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_end_of_a_reply_takes_the_focus_from_nobody_who_types(page: Page) -> None:
    set_number(page, "Max tokens", "60")
    say(page, STORY)
    search = page.get_by_role("searchbox")
    search.focus()
    wait_for_the_end(page)
    expect(search).to_be_focused()
    page.locator(".message.assistant").get_by_label("Regenerate").click()
    wait_for_the_end(page)
    expect(box(page)).to_be_focused()  # nobody typed elsewhere


def test_a_finger_chooses_an_alternative(visit: Visit, url: str) -> None:
    page = visit(url, width=390, has_touch=True, is_mobile=True)
    say(page, STORY)
    expect(box(page)).to_have_value(f"{STORY}\n")  # a phone has no Shift+Enter for a line
    page.get_by_role("button", name="Send", exact=True).tap()
    wait_for_the_end(page)
    page.get_by_label("Settings").first.tap()
    page.get_by_label("Tint by probability").tap()
    page.locator(".curtain").tap(position={"x": 5, "y": 400})
    page.locator(".message.assistant .token").nth(1).tap()
    page.locator(".alternative:enabled").first.tap()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    page.locator(".rooms").get_by_role("button", name="Inspect").tap()
    page.locator(".map canvas").tap(position={"x": 5, "y": 5})
    expect(page.locator("figure [role=status]")).to_contain_text("→")


WATCH_BUSY = """() => {
  window.wasBusy = false;
  const isBusy = () => document.querySelector(".message.assistant[aria-busy=true]") !== null;
  const seen = { subtree: true, childList: true, attributes: true };
  new MutationObserver(() => (wasBusy ||= isBusy())).observe(document.body, seen);
}"""


def test_a_growing_reply_is_read_aloud_once_it_has_ended(page: Page) -> None:
    page.evaluate(WATCH_BUSY)  # a reply may take only milliseconds
    set_number(page, "Max tokens", "60")
    say(page, STORY)
    wait_for_the_end(page)
    assert page.evaluate("wasBusy")
    assert page.locator("[aria-busy=true]").count() == 0
    expect(page.locator(".notice")).to_have_attribute("role", "alert")
