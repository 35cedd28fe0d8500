"""A choice of models in the view: one answers, or two side by side; a folder that vanishes."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import NANO, SCREENSHOTS
from in_browser import (
    box,
    other_tab,
    rename,
    replies,
    say,
    set_number,
    talk,
    wait_for_the_end,
)
from playwright.sync_api import Page, Request, Route, expect

from gptcore.bundle import read_facts, write_facts
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models

HELLO = "Tell me a story about a cat."


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return load_model(NANO, threads=1, variant="fp32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a model under another name."""
    copy = shutil.copytree(NANO, tmp_path / "other")
    write_facts(copy, replace(read_facts(NANO), name="other"))
    return copy


@pytest.fixture
def url(serve: Callable[..., str], model: OnnxModel, folder: Path) -> str:
    return serve(Models(model, [folder], within=folder.parent))


def expected(model: OnnxModel, text: str, sampling: Sampling, n: int) -> str:
    messages = [{"role": "user", "content": text}]
    return "".join(piece.text for piece in chat(model, messages, sampling, n))


def choose(page: Page, name: str) -> None:
    page.locator("#model").select_option(name)


def talk_to_both(page: Page) -> None:
    say(page, HELLO)
    expect(page.locator(".versus .message")).to_have_count(2)
    wait_for_the_end(page)
    expect(page.locator(".side").nth(1).locator(".body")).not_to_be_empty()
    # The first one is taken once both are kept, and they are drawn anew.
    expect(page.locator(".side").first.locator("[aria-pressed=true]")).to_be_visible()
    wait_for_the_end(page)


def wait_for_version(page: Page, n: int) -> None:
    """Wait for the end of a reply that begins only when its tokens are read."""
    expect(page.locator(".versions")).to_have_text(f"{n}/{n}")
    wait_for_the_end(page)


def test_the_model_that_is_chosen_answers(page: Page, model: OnnxModel, folder: Path) -> None:
    names = page.locator("#model").locator("option").all_inner_texts()
    assert names[:2] == [model.bundle.name, "other"] and "other · int8" in names
    other = load_model(folder, threads=1, variant="int8")
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "12")
    choose(page, "other@int8")
    expect(page.locator(".bar .name")).to_have_text("other · int8")
    expect(page.get_by_role("heading", name="Talk with other · int8")).to_be_visible()
    expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value("12")
    device = page.locator(".settings .device")
    expect(device).to_contain_text("parameters · opened by the first reply")
    assert talk(page, HELLO)[-1] == expected(other, HELLO, Sampling(temperature=0), 12).strip()
    expect(device).to_contain_text("model_quantized.onnx")  # the line of the one that answered
    page.reload()
    expect(page.locator("#model")).to_have_value("other@int8")
    expect(device).to_contain_text("model_quantized.onnx")
    choose(page, model.bundle.name)
    page.get_by_role("button", name="New chat").first.click()
    assert talk(page, HELLO)[-1] == expected(model, HELLO, Sampling(temperature=0), 12).strip()


def test_a_reply_tells_its_model_where_two_have_answered(page: Page, model: OnnxModel) -> None:
    set_number(page, "Max tokens", "4")
    talk(page, HELLO)
    expect(page.locator(".by")).to_have_count(0)
    choose(page, "other@int8")
    talk(page, HELLO)
    expect(page.locator(".by")).to_have_text([model.bundle.name, "other · int8"])
    page.reload()
    expect(page.locator(".by")).to_have_text([model.bundle.name, "other · int8"])


def test_a_choice_in_another_tab_is_shown(page: Page, model: OnnxModel) -> None:
    set_number(page, "Max tokens", "4")
    talk(page, HELLO)
    other = other_tab(page)
    choose(other, "other")
    set_number(other, "Max tokens", "7")
    other.get_by_label("System prompt").fill("Be brief.")
    expect(page.locator("#model")).to_have_value("other")
    expect(page.get_by_role("spinbutton", name="Max tokens")).to_have_value("7")
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")


def test_a_model_that_is_exported_meanwhile_is_in_the_list(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "later")
    write_facts(tmp_path / "later", replace(read_facts(folder), name="later"))
    picker = page.locator("#model")
    expect(picker.locator("option[value=later]")).to_have_count(0)
    page.get_by_label("Compare with").select_option("other")
    picker.hover()
    expect(picker.locator("option[value=later]")).to_have_count(1)
    expect(page.get_by_label("Compare with")).to_have_value("other")
    choose(page, "later")
    set_number(page, "Max tokens", "4")
    talk(page, HELLO)
    page.reload()
    expect(picker).to_have_value("later")


NO_RIVAL = """() => new Promise((resolve) => {
  const opening = indexedDB.open("gptcore-chats");
  opening.onsuccess = () => {
    const all = opening.result.transaction("chats").objectStore("chats").getAll();
    all.onsuccess = () => resolve(all.result.every((chat) => !chat.rival));
  };
})"""


def test_two_models_answer_side_by_side_with_one_seed(
    page: Page, model: OnnxModel, folder: Path
) -> None:
    set_number(page, "Max tokens", "12")
    rivals = page.get_by_label("Compare with").locator("option").all_inner_texts()
    assert model.bundle.name not in rivals, "a model is not compared with itself"
    page.get_by_label("Compare with").select_option("other@int8")
    talk_to_both(page)
    assert page.locator(".side strong").all_inner_texts() == [model.bundle.name, "other · int8"]
    first, second = replies(page).all_inner_texts()
    seed = int(page.locator(".figures [data-seed]").get_attribute("data-seed"))
    assert first == expected(model, HELLO, Sampling(seed=seed), 12).strip()
    other = load_model(folder, threads=1, variant="int8")
    assert second == expected(other, HELLO, Sampling(seed=seed), 12).strip()
    page.screenshot(path=SCREENSHOTS / "versus.png")
    rename(other_tab(page), "Cats")
    expect(page.locator(".chats li .title")).to_have_text("Cats")  # this tab has taken it over

    in_use = page.locator(".side").filter(has=page.locator("[aria-pressed=true]"))
    expect(in_use.locator("strong")).to_have_text(model.bundle.name)  # the chat's own
    page.get_by_role("button", name="Use this", exact=True).click()
    expect(page.locator(".side [aria-pressed=true]")).to_have_count(1)
    expect(page.locator(".side [aria-pressed=true]")).to_be_focused()  # not the other's button
    page.get_by_label("Compare with").select_option("")
    page.wait_for_function(NO_RIVAL)  # kept, too
    page.reload()
    expect(page.locator(".versus .message")).to_have_count(2)
    say(page, "Thanks!")
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(3)
    page.get_by_role("button", name="What the model read").last.click()
    expect(page.locator("dialog")).to_be_visible()
    read = "".join(page.locator("dialog .token").all_text_contents())
    assert second.split()[0] in read


@pytest.fixture
def sent(page: Page) -> list[list]:
    """What was asked for replies: messages, settings, what is begun, and the model's name."""
    found: list[list] = []

    def take(request: Request) -> None:
        if request.url.endswith("queue/join"):
            found.append(json.loads(request.post_data or "")["data"])

    page.on("request", take)
    return found


def with_another_tokenizer(route: Route) -> None:
    text = route.fetch().text()
    route.fulfill(body=re.sub(r'"tokenizer": ?"\w+"', '"tokenizer": "another"', text))


def test_a_reply_is_gone_on_with_by_its_own_model(
    page: Page, sent: list[list], model: OnnxModel
) -> None:
    """Its token ids are sent while their tokenizer is here: a model may be exported anew."""
    set_number(page, "Max tokens", "6")
    talk(page, HELLO)
    choose(page, "other")
    page.get_by_label("Tint by probability").click()
    page.locator(".message.assistant .token").nth(3).hover()
    page.locator(".alternative:enabled").first.click()
    wait_for_version(page, 2)
    _, _, begun, name = sent[-1]
    assert name == model.bundle.name and [type(i) for i in begun] == [int] * 4
    text = replies(page).text_content()
    page.reload()
    page.get_by_role("button", name="Continue").click()
    expect(replies(page)).not_to_have_text(text or "")
    wait_for_the_end(page)
    _, _, begun, name = sent[-1]
    assert name == model.bundle.name and {type(i) for i in begun} == {int}
    assert model.tokenizer.decode(begun) == text
    assert (replies(page).text_content() or "").startswith(text or "")

    def branch_after_a_reload(version: int) -> tuple[str, list]:
        page.reload()
        page.get_by_label("Tint by probability").click()
        tokens = page.locator(".message.assistant .token")
        expect(tokens.last).to_be_visible()
        before = "".join(tokens.all_text_contents()[:-1])
        tokens.last.hover()
        page.locator(".alternative:enabled").first.click()
        wait_for_version(page, version)
        return before, sent[-1]

    _, (_, _, begun, name) = branch_after_a_reload(3)
    assert name == model.bundle.name and {type(i) for i in begun} == {int}
    page.route("**/facts.json*", with_another_tokenizer)
    before, (_, _, begun, name) = branch_after_a_reload(4)
    assert name == model.bundle.name and begun.startswith(before)


def test_the_reply_that_is_not_in_use_is_continued_and_made_anew(
    page: Page, sent: list[list], model: OnnxModel
) -> None:
    set_number(page, "Max tokens", "6")
    page.get_by_label("Compare with").select_option("other")
    talk_to_both(page)
    second = page.locator(".side").nth(1)
    asked = [{"role": "user", "content": HELLO}]
    second.get_by_role("button", name="Continue").click()
    expect(second.locator("[aria-pressed=true]")).to_be_visible()
    wait_for_the_end(page)
    assert sent[-1][0] == asked and sent[-1][3] == "other"
    first = page.locator(".side").first
    first.get_by_label("Regenerate").click()
    expect(page.locator(".versions").first).to_have_text("3/4")
    wait_for_the_end(page)
    assert [messages for messages, *_ in sent] == [asked] * 5


def test_a_model_whose_folder_vanishes_is_told_and_loses_nothing(
    page: Page, model: OnnxModel, folder: Path
) -> None:
    set_number(page, "Max tokens", "12")
    talk(page, HELLO)
    shutil.rmtree(folder)
    choose(page, "other")
    say(page, "And a dog?")
    expect(page.locator(".foot .notice.error")).to_contain_text("other")
    expect(box(page)).to_have_value("And a dog?")
    expect(replies(page)).to_have_count(1)
    choose(page, model.bundle.name)
    talk(page, "And a dog?")
