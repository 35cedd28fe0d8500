"""The chat view in a real browser, in the Gradio page; test_web.py has the static site's."""

import json
import re
from collections.abc import Callable

import pytest
from api_server import slow_steps, wait_until_idle
from conftest import SCREENSHOTS, Visit
from in_browser import (
    asked,
    box,
    delete_last,
    edit,
    replies,
    say,
    set_number,
    talk,
    wait_for_the_end,
)
from playwright.sync_api import Page, expect

from gptcore.model import OnnxModel

pytestmark = pytest.mark.slow

Serve = Callable[[OnnxModel], str]
STORY = "Tell me a story about a cat."
SHIFTS = """() => new Promise((resolve) => {
    const sum = (list) => list.getEntries().filter((shift) => !shift.hadRecentInput)
        .reduce((total, { value }) => total + value, 0);
    const observer = new PerformanceObserver((list) => resolve(sum(list)));
    observer.observe({ type: "layout-shift", buffered: true });
    setTimeout(() => resolve(0), 1000); // nothing moved
})"""


def test_a_reload_and_a_second_tab_lose_nothing(page: Page, url: str) -> None:
    before = talk(page, "Hello! Who are you?", "My name is Ada.", "What is my name?")
    assert "Ada" in before[2]
    page.reload()
    expect(replies(page)).to_have_text(before)
    other = page.context.new_page()
    other.goto(url)
    expect(replies(other)).to_have_text(before)
    talk(other, "I like red.")
    expect(replies(page)).to_have_count(4)  # the first tab follows
    talk(page, "I like tea.")
    expect(replies(other)).to_have_count(5)
    page.get_by_role("button", name="New chat").first.click()
    expect(replies(page)).to_have_count(0)
    talk(page, STORY)
    expect(page.locator(".chats li")).to_have_count(2)
    page.locator(".chats li").last.locator(".title").click()
    expect(replies(page)).to_have_count(5)


def test_a_chat_that_is_left_in_the_middle_of_a_reply_is_kept(page: Page) -> None:
    say(page, STORY)
    expect(replies(page).last).not_to_be_empty()
    page.get_by_role("button", name="New chat").first.click()
    expect(replies(page)).to_have_count(0)
    talk(page, "Hello!")
    expect(page.locator(".chats li .title")).to_have_text(["Hello!", STORY])
    page.locator(".chats li .title").last.click()
    expect(asked(page)).to_have_text([STORY])
    expect(replies(page)).not_to_be_empty()


def test_a_name_is_kept_and_escape_keeps_the_old_one(page: Page) -> None:
    talk(page, "Hello!")
    item = page.locator(".chats li")
    for key, title in (("Escape", "Hello!"), ("Enter", "Greeting")):
        item.hover()
        item.get_by_label("Rename").click()
        item.locator("input").fill("Greeting")
        item.locator("input").press(key)
        expect(item.locator(".title")).to_have_text(title)
    talk(page, "My name is Ada.")  # the open chat knows of its new name
    expect(item.locator(".title")).to_have_text("Greeting")


def test_versions_are_a_tree(page: Page) -> None:
    first = talk(page, "Hello!", STORY)
    page.locator(".message.assistant").last.get_by_label("Regenerate").click()
    wait_for_the_end(page)
    expect(page.locator(".versions").last).to_have_text("2/2")
    second = replies(page).last.inner_text()
    page.get_by_label("The version before").click()
    expect(replies(page)).to_have_text(first, use_inner_text=True)
    page.get_by_label("The next version").click()
    expect(replies(page).last).to_have_text(second, use_inner_text=True)
    # Other words of one's own make another branch, from which one comes back.
    edit(page.locator(".message.user").first, "Good evening!").press("Enter")
    expect(replies(page)).to_have_count(1)
    wait_for_the_end(page)
    page.get_by_label("The version before").first.click()
    expect(asked(page)).to_have_text(["Hello!", STORY])
    page.reload()
    expect(asked(page)).to_have_text(["Hello!", STORY])
    expect(page.locator(".versions")).to_have_text(["1/2", "2/2"])


def test_a_reply_is_edited_continued_and_deleted(page: Page) -> None:
    set_number(page, "Max tokens", "5")
    (short,) = talk(page, STORY)
    expect(page.locator(".finish")).to_have_text("Stopped at max tokens.")
    set_number(page, "Max tokens", "20")
    page.get_by_role("button", name="Continue").click()
    wait_for_the_end(page)
    longer = replies(page).last.inner_text()
    assert longer.startswith(short) and len(longer) > len(short) + 10
    edit(page.locator(".message.assistant"), "The cat went to sea.").press("Enter")
    expect(replies(page)).to_have_text(["The cat went to sea."])
    talk(page, "What did the cat do?")
    delete_last(page)
    expect(asked(page)).to_have_text([STORY])
    page.get_by_role("button", name="Undo").click()
    expect(asked(page)).to_have_text([STORY, "What did the cat do?"])


def test_the_glass_box_shows_what_might_have_been_and_branches(page: Page) -> None:
    set_number(page, "Temperature", "0")
    (reply,) = talk(page, STORY)
    page.get_by_label("Tint by probability").click()
    tokens = page.locator(".message.assistant .token")
    expect(tokens.first).to_be_visible()
    assert "".join(tokens.all_text_contents()) == reply
    tokens.nth(3).hover()
    panel = page.locator(".alternatives")
    rows = panel.locator(".alternative")
    expect(rows).to_have_count(5)
    assert rows.first.is_disabled()  # what it wrote, greedily, is the likeliest
    shares = [float(t.split("\n")[-1].strip("< %")) for t in rows.all_inner_texts()]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 101
    page.screenshot(path=SCREENSHOTS / "glass.png")
    before = "".join(tokens.all_text_contents()[:3])
    rows.nth(1).click()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    branched = "".join(page.locator(".message.assistant .token").all_text_contents())
    assert branched.startswith(before) and branched != reply
    page.get_by_label("What the model read").click()
    expect(page.locator("dialog")).to_contain_text("cat")
    expect(page.locator("dialog .special").last).to_have_text("<|assistant|>")


def test_settings_belong_to_a_chat_and_an_empty_field_is_the_default(page: Page) -> None:
    temperature = page.get_by_role("spinbutton", name="Temperature")
    set_number(page, "Temperature", "0.3")
    page.locator("#system").fill("You are Rex.")
    talk(page, "Hello!")
    page.get_by_role("button", name="New chat").first.click()
    set_number(page, "Temperature", "1.5")
    talk(page, "Good morning!")
    page.locator(".chats li").last.locator(".title").click()
    expect(temperature).to_have_value("0.3")
    expect(page.locator("#system")).to_have_value("You are Rex.")
    set_number(page, "Temperature", "")
    expect(temperature).to_have_value("0.7")
    for typed, taken in (("3.7", "4"), ("-5", "1"), ("1e9", "512")):
        set_number(page, "Max tokens", typed)
        expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value(taken)
    expect(page.get_by_text("a number from 1 to 512")).to_be_visible()
    set_number(page, "Temperature", "999")
    expect(temperature).to_have_value("10")
    expect(page.get_by_text("a number from 0 to 10")).to_be_visible()
    set_number(page, "Temperature", "0.5")
    expect(page.get_by_text("a number from 0 to 10")).to_have_count(0)
    page.get_by_role("button", name="Playful").click()
    expect(temperature).to_have_value("1.1")
    # The drawn seed gives the same reply again.
    talk(page, STORY)
    drawn = replies(page).last.inner_text()
    page.get_by_text("More settings").click()
    page.get_by_text("Use the last seed again").click()
    page.locator(".message.assistant").last.get_by_label("Regenerate").click()
    wait_for_the_end(page)
    expect(replies(page).last).to_have_text(drawn, use_inner_text=True)


def test_a_preset_of_ones_own_brings_back_what_it_was_made_of(page: Page) -> None:
    """But neither the length nor the seed, which are of one reply."""
    set_number(page, "Temperature", "0.4")
    set_number(page, "Max tokens", "20")
    page.get_by_text("More settings").click()
    set_number(page, "Seed", "5")
    page.locator("#stop").fill("Halt")
    page.locator("#schema").fill('{"type": "object"}')
    page.get_by_role("button", name="+ Save as preset").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("Mine")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Playful").click()
    expect(page.locator("#stop")).to_have_value("Halt")
    for field in ("#stop", "#schema"):
        page.locator(field).fill("")
    set_number(page, "Max tokens", "30")
    set_number(page, "Seed", "6")
    page.get_by_role("button", name="Mine", exact=True).click()
    expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("0.4")
    expect(page.locator("#stop")).to_have_value("Halt")
    expect(page.locator("#schema")).to_have_value('{"type": "object"}')
    expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value("30")
    expect(page.get_by_role("spinbutton", name="Seed")).to_have_value("6")
    kept = json.loads(page.evaluate("localStorage.getItem('gptcore-presets')"))["Mine"]
    assert kept["stop"] == ["Halt"] and not {"max_tokens", "seed"} & set(kept)


def test_a_setting_that_changes_while_the_one_before_is_kept_is_kept_too(page: Page) -> None:
    talk(page, "Hello!")
    page.evaluate(
        """() => {
            const { put } = IDBObjectStore.prototype;
            IDBObjectStore.prototype.put = function (...given) {
                IDBObjectStore.prototype.put = put;
                const request = put.apply(this, given);
                const stop = document.querySelector("#stop");
                stop.value = "Halt";
                stop.dispatchEvent(new Event("input"));
                return request;
            };
        }"""
    )
    set_number(page, "Max tokens", "30")
    page.wait_for_timeout(300)  # both are kept
    page.get_by_role("button", name="New chat").first.click()
    expect(page.locator("#stop")).to_have_value("Halt")
    expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value("30")


def test_a_reply_is_json_of_the_schema_in_the_settings_and_a_bad_one_is_told(page: Page) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "likes": {"enum": ["tea"]}},
        "required": ["name", "likes"],
        "additionalProperties": False,
    }
    page.get_by_text("More settings").click()
    field = page.get_by_label("Replies as JSON of a schema")
    field.fill(json.dumps(schema))
    (reply,) = talk(page, "Hello! Who are you?")
    found = json.loads(reply)
    assert [*found] == ["name", "likes"] and found["likes"] == "tea" and len(found["name"]) <= 12
    page.get_by_label("Tint by probability").click()  # the probabilities are the model's own
    page.locator(".message.assistant .token").first.hover()
    expect(page.locator(".alternative")).to_have_count(5)
    page.screenshot(path=SCREENSHOTS / "schema.png")
    for text, said in (
        ('{"type": "objekt"}', "schema: Invalid type: objekt"),
        ('{"type"', "The schema is no JSON"),
    ):
        field.fill(text)
        say(page, "Hello!")
        expect(page.locator(".notice")).to_contain_text(said)
        expect(replies(page)).to_have_count(1)
        expect(box(page)).to_have_value("Hello!")
    page.reload()
    page.get_by_text("More settings").click()
    expect(field).to_have_value('{"type"')  # it belongs to the chat
    field.fill("")
    talk(page, "Hello!")
    expect(page.locator(".notice")).to_be_hidden()


def test_stop_keeps_the_text_and_ends_the_computation(
    visit: Visit, serve: Serve, slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = slow_steps(monkeypatch)
    page = visit(serve(slow_model))
    set_number(page, "Temperature", "0")  # it never ends by itself
    set_number(page, "Max tokens", "2000")
    say(page, "Hello!")
    page.wait_for_function(
        "document.querySelector('.message.assistant .body').innerText.length > 9"
    )
    page.keyboard.press("Escape")
    expect(page.locator(".finish")).to_have_text("Stopped by you.")
    wait_until_idle(slow_model)
    assert len(steps) < 1000  # of 2000
    wait_for_the_end(page)
    kept = replies(page).inner_text()
    assert len(kept) > 3
    page.reload()
    expect(replies(page)).to_have_text([kept], use_inner_text=True)


def test_a_closed_tab_ends_the_computation(
    visit: Visit, serve: Serve, slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = slow_steps(monkeypatch)
    page = visit(serve(slow_model))
    set_number(page, "Temperature", "0")  # it never ends by itself
    set_number(page, "Max tokens", "2000")
    say(page, "Hello!")
    expect(replies(page)).not_to_have_text("")
    assert slow_model.engine.n_running == 1
    page.context.close()
    wait_until_idle(slow_model)
    assert len(steps) < 1000  # of 2000


def test_a_mistake_is_explained_and_loses_nothing(page: Page) -> None:
    say(page, "x" * 100_000)
    expect(page.locator(".notice")).to_contain_text("too long")
    expect(box(page)).to_have_value("x" * 100_000)
    expect(replies(page)).to_have_count(0)
    talk(page, "Hello!")
    expect(page.locator(".notice")).to_be_hidden()


def test_a_text_is_shown_as_it_was_typed_and_fetches_nothing(page: Page, url: str) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    typed = "Is a<b>c</b> <!--d--> <?e?> 1 &lt; 2? <img src=/pixel.png><video src=/v> $x$ **b**"
    talk(page, typed)
    assert asked(page).first.inner_text() == typed
    assert not [url for url in requests if url.endswith(("pixel.png", "/v"))]
    assert [r for r in requests if not r.startswith((url, "data:", "blob:"))] == []
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".message.user").hover()
    page.locator(".message.user").get_by_label("Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == typed


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_by_itself(visit: Visit, url: str, width: int) -> None:
    """The browser's own measure, the sum of layout shifts, stays under 0.05."""
    page = visit(url, width)
    talk(page, "Hello!", STORY)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Inspect").click()
    expect(page.locator(".chip").first).to_be_visible()
    page.get_by_role("button", name="Chat", exact=True).click()
    expect(replies(page)).to_have_count(2)
    assert page.evaluate(SHIFTS) < 0.05


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_looks_right_small_and_dark(visit: Visit, url: str, width: int, dark: bool) -> None:
    page = visit(url, width, dark)
    name = f"{width}-{'dark' if dark else 'light'}"
    page.screenshot(path=SCREENSHOTS / f"{name}-empty.png")
    talk(page, "My name is Ada.", STORY)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0, "the page does not scroll sideways"
    background = page.evaluate("getComputedStyle(document.querySelector('.gpt')).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness < 100) == dark
    jump = page.evaluate("getComputedStyle(document.querySelector('.jump')).backgroundColor")
    assert jump != "rgba(0, 0, 0, 0)", "no letters are seen through the button to the end"
    place = page.get_by_label("Settings").first.bounding_box()
    assert place["x"] + place["width"] <= width, "the whole bar is seen"
    page.get_by_label("Settings").first.click()  # hides it where it is shown, and the reverse
    page.screenshot(path=SCREENSHOTS / f"{name}-settings.png")


def test_chinese_is_chosen_by_the_browser_and_by_a_switch(visit: Visit, url: str) -> None:
    page = visit(url, locale="zh-CN")
    expect(box(page)).to_have_attribute("placeholder", "输入消息")
    talk(page, "Hello!")
    page.screenshot(path=SCREENSHOTS / "chinese.png")
    page.get_by_role("button", name="English").click()
    expect(box(page)).to_have_attribute("placeholder", "Type a message")
    expect(replies(page)).to_have_count(1)
    page.reload()
    expect(box(page)).to_have_attribute("placeholder", "Type a message")


def test_the_api_is_described_for_programs(page: Page) -> None:
    """By Gradio's own page, which the settings lead to; /chat's parameters are explained there."""
    page.get_by_role("link", name="The API, for programs").click()
    docs = page.locator(".api-docs")
    expect(docs).to_contain_text("/chat")
    expect(docs).to_contain_text("what the model is told before the conversation")
    page.errors.clear()  # Gradio asks for what is refused here
