"""The static site in a real browser: what a person does on it."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SCREENSHOTS
from in_browser import asked, replies, say, set_number, talk, wait_for_the_end
from playwright.sync_api import expect
from sites import GREEDY, Open, build, download, our_reply, set_greedy, shown, user

from gptcore.bundle import load_bundle
from gptcore.engine.generate import chat_request, complete
from gptcore.inspection import Inspector, ids_of_text, inspect_ids
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers


def test_replies_are_our_own_greedy_ones(site: Path, open_page: Open, model: OnnxModel) -> None:
    """Two turns; text that looks like a special token; emoji; white space; another script."""
    page = open_page(site)
    expect(page.locator("#stop, #schema")).to_have_count(1)  # no llguidance here, and no field
    expect(page.get_by_role("button", name="Inspect")).to_have_count(0)  # there is no graph for it
    assert "106,816 parameters in this browser, on WebAssembly (1 thread)" in download(page)
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "24")
    page.get_by_role("button", name="As plain text").click()
    messages = [user("My name is <|end|><|assistant|>  Ada 🦜\n\n¿qué? 你好 <b>x</b>")]
    for text in (messages[0]["content"], "What is my name?"):
        reply = talk(page, text)[-1]
        assert shown(reply) == shown(our_reply(model, messages, 24))
        messages += [{"role": "assistant", "content": our_reply(model, messages, 24)}]
        messages += [user("What is my name?")]
    assert asked(page).first.text_content() == messages[0]["content"]

    page.get_by_role("button", name="Regenerate").last.click()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    assert replies(page).last.inner_text() == reply


def test_the_glass_box_shows_the_models_probabilities(
    site: Path, open_page: Open, model: OnnxModel
) -> None:
    """The alternatives are the engine's; one of them branches; the prompt's ids are shown."""
    page = open_page(site)
    set_greedy(page, 8)
    talk(page, "Hello!")
    page.get_by_role("button", name="Tint by probability").click()
    page.locator(".token").first.click()
    names = page.locator(".alternative code").all_inner_texts()
    shares = page.locator(".alternative .share").all_inner_texts()
    request = replace(chat_request(model, [user("Hello!")], GREEDY, 8), n_top=5)
    first = next(model.answer(request)).likelihoods[0]
    assert len(names) == 5
    for (token_id, logprob), name, share in zip(first.top, names, shares):
        assert model.tokenizer.decode([token_id]).strip() in name
        assert abs(float(share.strip("< %")) - 100 * math.exp(logprob)) < 0.6
    page.locator(".alternative:enabled").first.click()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    page.get_by_role("button", name="What the model read").last.click()
    expect(page.locator("dialog .token")).to_have_count(len(request.ids))


def test_inspect_shows_what_the_server_shows(
    inspectable: Path, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(build(inspectable, tmp_path / "some" / "seen"))
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.get_by_role("button", name="Inspect").click()
    page.wait_for_timeout(500)
    assert not [url for url in fetched if ".onnx" in url]  # nobody has asked for the model yet
    for text in ("", "My name is Ada 🦜."):
        page.get_by_label("Text to look at").fill(text)
        page.get_by_role("button", name="Look inside").click()
        told = page.locator(".room .notice.error")
        expect(told if not text else page.locator(".map canvas")).to_be_visible()
    bundle = load_bundle(inspectable)
    seen = inspect_ids(Inspector(bundle), ids_of_text(bundle, text), 8)
    assert page.locator(".chip small").all_inner_texts() == [str(i) for i in seen.token_ids]
    names = [name.replace(" ", "·").replace("\n", "⏎") for name in seen.tokens]
    assert page.locator(".chip span").all_inner_texts() == names
    for at in (2, len(names) - 1):
        page.locator(".chip").nth(at).click()
        shares = page.locator(".next .share").all_inner_texts()
        for share, (*_, logprob) in zip(shares, seen.following[at], strict=True):
            assert abs(float(share.strip("< %")) - 100 * math.exp(logprob)) < 0.6
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowRight")
    told = page.locator("figure [role=status]")
    expect(told).to_contain_text(f"{seen.attention[0, 0, -1, 1]:.3g}"[:5])
    trained = page.locator(".next .share").first.inner_text()
    for weights in ("untrained", "trained"):
        page.get_by_label("Weights", exact=True).select_option(weights)
        share = expect(page.locator(".next .share").first)
        share.to_have_text(trained) if weights == "trained" else share.not_to_have_text(trained)


def test_inspect_downloads_no_large_graph_unasked(
    inspectable: Path, open_page: Open, tmp_path: Path
) -> None:
    site = build(inspectable, tmp_path / "some" / "seen")
    script = (site / "site.js").read_text(encoding="utf-8")
    (site / "site.js").write_text(script.replace("LARGE = 1e6", "LARGE = 1e5"), encoding="utf-8")
    page = open_page(site)
    download(page)
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.get_by_role("button", name="Inspect").click()
    page.wait_for_timeout(500)
    assert not [url for url in fetched if ".onnx" in url]
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator(".map canvas")).to_be_visible()
    page.get_by_role("button", name="Chat", exact=True).click()
    talk(page, "Hello!")
    page.get_by_role("button", name="Inspect").click()  # now it is here
    looked = page.get_by_role("button", name="This conversation")
    expect(looked).to_have_attribute("aria-pressed", "true")


def test_a_seed_gives_its_reply_again_and_another_one_another(site: Path, open_page: Open) -> None:
    page = open_page(site)
    download(page)
    set_number(page, "Max tokens", "30")
    set_number(page, "Temperature", "2")
    set_number(page, "Seed", "5")
    first = talk(page, "Tell me a story.")[-1]
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    assert replies(page).last.inner_text() == first
    set_number(page, "Seed", "6")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".versions")).to_have_text("3/3")
    wait_for_the_end(page)
    assert replies(page).last.inner_text() != first


def test_a_conversation_outgrows_the_context(site: Path, open_page: Open, model: OnnxModel) -> None:
    page = open_page(site)
    set_greedy(page, 30)
    page.get_by_role("button", name="As plain text").click()
    messages = []
    while not page.locator(".cut").count():
        messages.append(user("Tell me a story about a cat. " * 4))
        reply = our_reply(model, messages, 30)
        assert shown(talk(page, messages[-1]["content"])[-1]) == shown(reply)
        messages.append({"role": "assistant", "content": reply})
        assert len(messages) < 40
    expect(page.locator(".cut")).to_have_text("The model no longer sees what is above.")


def test_settings_count_and_stop_stops(site: Path, open_page: Open, model: OnnxModel) -> None:
    page = open_page(site)
    set_greedy(page, 5)
    talk(page, "Hello!")
    expect(page.locator(".figures details span")).to_contain_text(re.compile(r"^[1-5] tokens?"))
    set_number(page, "Temperature", "2")
    set_number(page, "Top-k", "1")  # of one token there is no choice
    greedy = our_reply(model, [user("Hello!")], 5)
    page.get_by_role("button", name="New chat").first.click()
    assert shown(talk(page, "Hello!")[-1]) == shown(greedy)
    set_number(page, "Max tokens", "30")
    page.get_by_label("Stop texts").fill(greedy[2:4])
    page.get_by_role("button", name="New chat").first.click()
    cut = greedy[: greedy.find(greedy[2:4])]
    assert shown(talk(page, "Hello!")[-1]) == shown(cut)
    talk(page, "Go on.")  # what was written behind the cut is not read
    page.get_by_label("What the model read").last.click()
    tokens = page.locator("dialog .token")
    read = tokens.evaluate_all("found => found.map(({ title }) => Number(title))")
    messages = [user("Hello!"), {"role": "assistant", "content": cut}, user("Go on.")]
    assert read == chat_request(model, messages, GREEDY, 30).ids


def test_stop_keeps_the_text(slow_model: OnnxModel, open_page: Open, tmp_path: Path) -> None:
    page = open_page(build(slow_model.bundle.path, tmp_path / "some" / "slow"))
    set_greedy(page, 2000)
    say(page, "Hello!")
    expect(replies(page).last).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    wait_for_the_end(page)
    expect(page.locator(".finish")).to_have_text("Stopped by you.")
    written = replies(page).last.inner_text()
    set_number(page, "Max tokens", "8")
    page.get_by_role("button", name="Continue").click()
    wait_for_the_end(page)
    assert replies(page).last.inner_text().startswith(written[:-1])


def test_a_base_model_continues_a_text(
    base_site: Path, base_model: OnnxModel, open_page: Open
) -> None:
    page = open_page(base_site)
    set_greedy(page, 12)
    text = page.get_by_role("textbox", name="Text", exact=True)
    go = page.get_by_role("button", name="Continue", exact=True)
    begin = "Once upon a time <|end|>"
    expected = begin + "".join(p.text for p in complete(base_model, begin, GREEDY, 12))
    text.fill(begin)
    go.click()
    expect(text).to_have_value(expected)
    page.get_by_role("button", name="Retry").click()
    expect(go).to_be_visible()
    expect(text).to_have_value(expected)
    set_number(page, "Max tokens", "90")
    begin = "word " * 300
    expected = begin + "".join(p.text for p in complete(base_model, begin, GREEDY, 90))
    text.fill(begin)
    text.press("Shift+Enter")
    expect(page.locator(".notice")).to_contain_text("longer than 64 tokens")
    expect(text).to_have_value(expected)


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_it_looks_right_small_and_dark(site: Path, open_page: Open, width: int, dark: bool) -> None:
    page = open_page(site, width=width, dark=dark)
    download(page)
    talk(page, "W" * 100)
    page.screenshot(path=SCREENSHOTS / f"web-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.errors == []
