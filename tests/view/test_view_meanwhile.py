"""What a person does while a reply is being written, or a message is being changed."""

import pytest
from in_browser import (
    asked,
    box,
    edit,
    replies,
    say,
    set_number,
    slow_network,
    talk,
    wait_for_the_end,
    write_slowly,
)
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.slow

STORY = "Tell me a story about a cat."


@pytest.fixture
def writing(page: Page, monkeypatch: pytest.MonkeyPatch) -> Page:
    """The page with a long reply that has just begun."""
    write_slowly(page, monkeypatch)
    say(page, STORY)
    expect(replies(page).last).not_to_be_empty()
    return page


def test_a_reply_without_text_yet_shows_that_it_is_coming_and_no_tools(page: Page) -> None:
    held: list[Route] = []
    page.route("**/queue/join*", lambda route: held.append(route))  # as on a busy machine
    say(page, STORY)
    reply = page.locator(".message.assistant")
    expect(reply.locator(".tools")).to_be_hidden()
    sign = "body => { const { content, animationName } = getComputedStyle(body, '::after');"
    sign += "return [content.slice(1, 6), animationName]; }"
    assert reply.locator(".body").evaluate(sign) == ["● ● ●", "coming"]
    page.emulate_media(reduced_motion="reduce")
    assert reply.locator(".body").evaluate(sign) == ["● ● ●", "none"]
    held[0].continue_()
    wait_for_the_end(page)
    expect(page.locator(".coming")).to_have_count(0)
    expect(reply.locator(".tools")).to_be_visible()


def test_what_is_deleted_while_it_is_written_stays_deleted(writing: Page) -> None:
    writing.get_by_role("button", name="Delete all", exact=True).click()
    writing.get_by_role("button", name="Delete all chats, for ever").click()
    expect(writing.locator(".chats li")).to_have_count(0)
    writing.reload()
    expect(box(writing)).to_be_visible()
    expect(writing.locator(".chats li")).to_have_count(0)
    say(writing, STORY)
    expect(replies(writing).last).not_to_be_empty()
    writing.locator(".chats li").hover()
    writing.get_by_label("Delete Tell me").click()
    expect(writing.locator(".chats li")).to_have_count(0)
    writing.reload()
    expect(box(writing)).to_be_visible()
    expect(writing.locator(".chats li")).to_have_count(0)


def test_a_message_that_was_just_sent_survives_a_reload(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slowly(page, monkeypatch)
    say(page, STORY)
    expect(page.locator(".chats li")).to_have_count(1)
    assert page.locator(".send.halt").is_visible()  # the reply is not at its end
    page.reload()
    expect(asked(page)).to_have_text([STORY])


def test_a_change_of_a_message_ends_the_reply_that_is_being_written(page: Page) -> None:
    talk(page, "Hello!")
    page.get_by_label("Tint by probability").click()
    set_number(page, "Max tokens", "500")
    set_number(page, "Temperature", "2")
    editor = edit(page.locator(".message.user"), "Good morning!")
    with slow_network(page, bytes_per_s=1000):  # else it may have ended before a key is pressed
        say(page, STORY)
        expect(replies(page)).to_have_count(2)
        expect(replies(page).last).not_to_be_empty()
        expect(page.get_by_label("Regenerate").first).to_be_hidden()  # it must wait
        page.locator(".message.assistant .token").first.click()
        page.keyboard.press("Escape")  # closes the alternatives, and no more
        expect(page.locator(".alternatives")).to_have_count(0)
        expect(page.locator(".send.halt")).to_be_visible()
        editor.press("Enter")
    expect(asked(page)).to_have_text(["Good morning!"])
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(1)
    page.get_by_label("The version before").first.click()
    expect(asked(page)).to_have_text(["Hello!", STORY])
    expect(page.locator(".finish")).to_have_text("Stopped by you.")


def test_a_message_that_is_being_changed_is_not_drawn_anew(page: Page) -> None:
    talk(page, "Hello!")
    edit(page.locator(".message.user"), "Half a new mes")
    for button in ("As plain text", "Tint by probability"):
        page.get_by_label(button).click()
        expect(page.locator(".editor")).to_have_value("Half a new mes")
    box(page).press("ArrowUp")  # asks for the same
    expect(page.locator(".editor")).to_be_focused()
    expect(page.locator(".editor")).to_have_value("Half a new mes")


def test_the_alternatives_to_a_token_are_reached_by_keys(page: Page) -> None:
    talk(page, STORY)
    page.get_by_label("Tint by probability").click()
    page.locator(".message.assistant .token[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    second = page.locator(".message.assistant .token").nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".alternative:focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".alternatives")).to_have_count(0)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)


def test_escape_in_a_name_ends_no_reply(writing: Page) -> None:
    writing.get_by_role("button", name="+ Save as preset").click()
    writing.get_by_label("Name", exact=True).press("Escape")
    expect(writing.get_by_role("button", name="+ Save as preset")).to_be_visible()
    expect(writing.locator(".send.halt")).to_be_visible()
