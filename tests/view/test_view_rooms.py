"""The rooms Inspect and Translate of the view, in a real browser."""

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from conftest import SCREENSHOTS, SECONDS, TINY, Visit
from in_browser import box, edit, enter, say, set_number, talk
from playwright.sync_api import Locator, Page, expect

from export.folder.write import add_inspect
from gptcore.bundle import read_facts, write_facts
from gptcore.inspection import Inspector, ids_of_messages, ids_of_text, inspect_ids
from gptcore.model import OnnxModel, load_model
from gptcore.page.translate import translate_lines
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import Translation, translate

LINES = ["跑猫红二。", "睡觉老鼠灰七。"]
EXAMPLE = "My name is Ada. What is my name?"


@pytest.fixture(scope="module")
def seen_model(inspectable: Path) -> OnnxModel:
    return load_model(inspectable, threads=1)


@pytest.fixture(scope="module")
def url(
    serve: Callable[..., str], seen_model: OnnxModel, translator: OnnxTranslator
) -> Iterator[str]:
    """The address of a page that has every room."""
    sound = translator.bundle
    translator.bundle = replace(sound, facts=replace(sound.facts, examples=tuple(LINES)))
    yield serve(seen_model, translator)
    translator.bundle = sound


def press(page: Page, name: str) -> None:
    page.locator(".room:visible").get_by_role("button", name=name, exact=True).click()


def notice(page: Page) -> Locator:
    return page.locator(".room:visible .notice")


def target(page: Page) -> Locator:
    return page.get_by_label("Translation", exact=True)


def translate_it(page: Page, text: str) -> None:
    page.get_by_label("Text", exact=True).fill(text)
    press(page, "Translate")


def cells(page: Page) -> tuple[int, int]:
    """Rows and columns of the large heat map."""
    names = page.locator(".room:visible .map").first
    return names.locator(".rows li").count(), names.locator(".columns li").count()


def test_a_reload_stays_in_its_room_and_back_leaves_it(page: Page) -> None:
    now = page.locator(".rooms [aria-current=page]")
    talk(page, "Hello!")
    for room in ("Translate", "Inspect"):
        enter(page, room)
        page.reload()
        expect(now).to_have_text(room)
    expect(page.get_by_role("button", name="This conversation")).to_be_visible()
    page.go_back()
    expect(now).to_have_text("Translate")
    enter(page, "Chat")
    assert "#" not in page.url
    page.go_back()
    expect(page.get_by_label("Text", exact=True)).to_be_visible()
    page.goto(page.url.split("#")[0] + "#nowhere")
    page.reload()
    expect(now).to_have_text("Chat")


def test_lines_are_translated_and_pictured(
    page: Page, url: str, translator: OnnxTranslator
) -> None:
    """Also: another sentence, layer and head draw another picture; nothing leaves the host."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    enter(page, "Translate")
    results = [translate(translator, line, beams=4) for line in LINES]
    translate_it(page, "\n".join(LINES))
    expect(target(page)).to_have_value("\n".join(result.text for result in results))
    expect(page.get_by_label("Picture of sentence")).to_be_visible()
    sizes = [(len(r.target_ids) - 1, len(r.source_ids)) for r in results]
    assert cells(page) == sizes[0]
    first = page.locator(".map canvas").screenshot()
    page.get_by_label("Picture of sentence").select_option("1")
    expect(page.locator(".map .rows li")).to_have_count(sizes[1][0])
    mean = page.locator(".map canvas").screenshot()
    page.get_by_label("Heads").select_option(label="1")
    head = page.locator(".map canvas").screenshot()
    page.get_by_label("Layer", exact=True).select_option(label="1")
    layer = page.locator(".map canvas").screenshot()
    assert len({first, mean, head, layer}) == 4
    for kind in ("encoder", "decoder"):
        page.get_by_label("Attention", exact=True).select_option(kind)
        expect(page.locator(".room:visible figcaption")).to_contain_text(kind)
    n_read = len(results[1].target_ids) - 1
    assert cells(page) == (n_read, n_read)
    page.get_by_label("Attention", exact=True).select_option("cross")
    page.screenshot(path=SCREENSHOTS / "translate.png")

    page.get_by_label("Beams").fill("1")
    page.get_by_role("button", name=LINES[0]).click()  # an example
    page.get_by_label("Text", exact=True).press("Shift+Enter")
    expect(target(page)).to_have_value(translate(translator, LINES[0], beams=1).text)
    translate_it(page, "😀 ok")  # unknown to the model
    expect(page.locator(".room:visible [role=status]").first).to_contain_text("1 sentence")
    assert [r for r in requests if not r.startswith((url, "data:", "blob:"))] == []


def test_a_mistake_in_a_text_to_translate_loses_nothing(page: Page) -> None:
    enter(page, "Translate")
    translate_it(page, LINES[0])
    expect(page.locator(".map canvas")).to_be_visible()
    for text, message in (
        (" ", "The text is empty"),
        ("跑\n" * 101, "The text has 101 lines"),
        (f"{LINES[0]}\n{'跑' * 40}", "Sentence 2: The text has"),
    ):
        translate_it(page, text)
        expect(notice(page)).to_contain_text(message)
        expect(page.get_by_label("Text", exact=True)).to_have_value(text)
        expect(target(page)).to_have_value("")  # not the translation of another text
        expect(page.locator(".map canvas")).to_be_hidden()
    page.get_by_label("Beams").fill("99")
    translate_it(page, LINES[0])
    expect(notice(page)).to_contain_text("beams=99 must be a whole number from 1 to 16")


def test_another_language_keeps_what_is_typed_in_the_rooms(page: Page) -> None:
    enter(page, "Inspect")
    page.get_by_label("Text to look at").fill("Ada likes tea.")
    enter(page, "Translate")
    page.get_by_label("Text", exact=True).fill(LINES[0])
    page.get_by_label("Beams").fill("2")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("#source")).to_have_value(LINES[0])
    expect(page.locator("#beams")).to_have_value("2")
    page.locator("[data-room='room.inspect']").click()
    expect(page.locator(".room:visible textarea")).to_have_value("Ada likes tea.")


def test_mistakes_are_told_in_chinese(visit: Visit, url: str) -> None:
    page = visit(url, locale="zh-CN")
    expect(page.locator("aside .device")).to_contain_text("个参数")
    for text, message in (
        ("a" * 90_000, "文本太长：有 90,000 个字符"),
        ("a " * 600, "消息（连同系统提示）太长"),
    ):
        say(page, text)
        expect(page.locator(".notice.error:visible")).to_contain_text(message)
        expect(box(page)).to_have_value(text)
    enter(page, "观察")
    page.locator(".room:visible textarea").first.fill("a " * 300)
    press(page, "观察内部")
    expect(notice(page)).to_contain_text("图中最多容纳")
    enter(page, "翻译")
    page.locator(".room:visible textarea").first.fill(f"{LINES[0]}\n{'跑' * 40}")
    press(page, "翻译")
    expect(notice(page)).to_have_text(
        "第 2 句：文本有 41 个词元，模型最多读取 32 个：请缩短，或逐句翻译"
    )
    expect(page.locator(".room:visible .device")).to_contain_text("个参数")


def test_stop_keeps_what_is_translated_and_the_next_text_can_be_sent(
    page: Page, translator: OnnxTranslator
) -> None:
    enter(page, "Translate")
    page.get_by_label("Beams").fill("16")  # slow enough to be stopped
    translate_it(page, "红蓝绿白黑灰红蓝绿白黑灰\n" * 100)
    status = page.locator(".room:visible [role=status]").first
    expect(status).to_contain_text("sentence")
    page.keyboard.press("Escape")
    expect(status).to_contain_text("Stopped by you.")
    assert 1 <= len(target(page).input_value().splitlines()) < 100
    page.get_by_label("Beams").fill("4")
    translate_it(page, LINES[0])
    expect(target(page)).to_have_value(translate(translator, LINES[0], beams=4).text)


def test_a_closed_tab_ends_a_long_translation(
    page: Page, translator: OnnxTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, session = [], Event(), translator.session
    monkeypatch.setattr(translator, "session", lambda: (begun.append(1), session())[1])

    def lines(*values: Any) -> Iterator[Translation]:
        try:
            yield from translate_lines(*values)
        finally:
            ended.set()

    monkeypatch.setattr("gptcore.page.translate.translate_lines", lines)
    enter(page, "Translate")
    page.get_by_label("Beams").fill("16")
    translate_it(page, "红蓝绿白黑灰红蓝绿白黑灰\n" * 100)
    expect(page.locator(".room:visible [role=status]").first).to_contain_text("sentence")
    page.context.close()
    assert ended.wait(SECONDS) and 1 <= len(begun) < 100


def test_inspect_shows_what_the_model_computes(page: Page, seen_model: OnnxModel) -> None:
    """Tokens and their ids, the likeliest ones after each, every picture, every head."""
    enter(page, "Inspect")
    expect(page.get_by_label("Text to look at")).to_have_value(EXAMPLE)
    press(page, "Look inside")
    ids = ids_of_text(seen_model.bundle, EXAMPLE)
    seen = inspect_ids(Inspector(seen_model.bundle), ids, 8)
    chips = page.locator(".chip")
    expect(chips).to_have_count(len(seen.tokens))
    assert chips.locator("small").all_inner_texts() == [str(i) for i in seen.token_ids]
    for at in (len(seen.tokens) - 1, 3):
        chips.nth(at).click()
        shares = page.locator(".next .share").all_inner_texts()
        for share, (_, _, logprob) in zip(shares, seen.following[at], strict=True):
            assert abs(float(share.strip("< %")) - 100 * math.exp(logprob)) < 0.6
    n_layer, n_head, n, _ = seen.attention.shape
    assert cells(page) == (n, n) and page.locator(".head-picture").count() == n_head
    assert page.get_by_label("Layer", exact=True).locator("option").count() == n_layer

    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowRight")
    told = page.locator(".room:visible figure [role=status]")
    expect(told).to_contain_text(f"{seen.attention[0, 0, n - 1, 1]:.3g}"[:5])
    page.keyboard.press("ArrowUp")
    page.locator(".map canvas").hover(position={"x": 300, "y": 5})
    expect(told).to_contain_text("masked")
    pictures = set()
    for picture in ("attention", "before", "after"):
        page.get_by_label("Picture", exact=True).select_option(picture)
        hatched = page.get_by_text("Hatched cells are masked.")
        expect(hatched).to_have_count(int(picture != "before"))
        pictures.add(page.locator(".map canvas").screenshot())
    page.get_by_label("Layer", exact=True).select_option(label="2")
    expect(page.locator("figcaption").first).to_contain_text("layer 2, head 1")
    page.locator(".head-picture").nth(n_head - 1).click()
    expect(page.locator("figcaption").first).to_contain_text(f"layer 2, head {n_head}")
    page.screenshot(path=SCREENSHOTS / "inspect.png")
    pictures.add(page.locator(".map canvas").screenshot())
    assert len(pictures) == 4
    page.get_by_label("Picture", exact=True).select_option("qkv")
    head_dim = seen_model.config.head_dim
    for name, n_of in (("queries", n_head), ("keys", seen_model.config.n_kv_head)):
        expect(page.locator("figcaption").filter(has_text=name)).to_contain_text(
            f"{n_of} × {n} × {head_dim}"
        )
    page.get_by_label("Picture", exact=True).select_option("norms")
    expect(page.locator(".map canvas")).to_have_count(2)
    for picture in ("embeddings", "positions"):
        page.get_by_label("Picture", exact=True).select_option(picture)
        expect(page.get_by_label("Layer", exact=True)).to_have_count(0)
        expect(page.locator(".map canvas").first).to_be_visible()
    expect(page.locator(".curves polyline").first).to_be_attached()
    trained = page.locator(".next .share").all_inner_texts()
    page.get_by_label("Weights", exact=True).select_option("untrained")
    expect(page.locator(".next .share").first).not_to_have_text(trained[0])
    shares = [float(s.strip("< %")) for s in page.locator(".next .share").all_inner_texts()]
    assert max(shares) < 2 and page.locator(".chip").count() == n
    page.get_by_label("Weights", exact=True).select_option("trained")
    expect(page.locator(".next .share")).to_have_text(trained)
    page.get_by_text("The shapes").click()
    expect(page.locator(".shapes")).to_contain_text(f"{n_head} × {n} × {n}")


def test_inspect_opens_on_the_last_word_and_goes_on_with_a_token(
    page: Page, seen_model: OnnxModel
) -> None:
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "20")  # the picture holds 128
    reply = talk(page, "My name is Ada.")[-1]
    enter(page, "Inspect")
    roles = [("user", "My name is Ada."), ("assistant", reply)]
    messages = [{"role": role, "content": content} for role, content in roles]
    chips = page.locator(".chip")
    ids = ids_of_messages(seen_model.bundle, messages).ids
    expect(chips).to_have_count(len(ids))
    following = inspect_ids(Inspector(seen_model.bundle), ids, 8).following
    has_ended = ids[-1] == seen_model.bundle.tokenizer.special["<|end|>"]
    at = len(ids) - 1 - has_ended
    expect(chips.nth(at)).to_have_attribute("aria-pressed", "true")
    page.locator(".next .alternative").nth(1).click()
    expect(chips.nth(at + 1).locator("small")).to_have_text(str(following[at][1][0]))
    expect(chips).to_have_count(at + 2)


def test_of_a_long_reply_the_beginning_is_drawn_and_stays(page: Page) -> None:
    talk(page, "My name is Ada.")
    edit(page.locator(".message.assistant"), "Once there was a cat. " * 40).press("Enter")
    enter(page, "Inspect")
    chips = page.locator(".chip")
    expect(chips).to_have_count(128)
    expect(notice(page)).to_contain_text("tokens of the reply were left out")
    page.get_by_label("Layer", exact=True).select_option("1")
    expect(notice(page)).to_contain_text("tokens of the reply were left out")
    page.locator(".next .alternative").first.click()
    expect(notice(page)).to_contain_text("The text has 129 tokens and the picture holds 128")
    expect(chips).to_have_count(128)


def test_a_text_that_cannot_be_drawn_is_told(page: Page) -> None:
    enter(page, "Inspect")
    box = page.get_by_label("Text to look at")
    for text, message in (
        ("a b " * 100, "The text has"),
        ("x" * 100_000, "The text is too long"),
        (" ", "The text is empty"),
    ):
        box.fill(text)
        box.press("Enter")
        expect(notice(page)).to_contain_text(message)
        expect(box).to_have_value(text)
        expect(page.locator(".map canvas")).to_have_count(0)  # not the picture of another text


def test_without_its_graph_inspect_says_what_to_run(
    visit: Visit, serve: Callable[..., str], tmp_path: Path
) -> None:
    without = shutil.ignore_patterns("inspect.onnx", "untrained.onnx")
    folder = shutil.copytree(TINY / "model", tmp_path / "base", ignore=without)
    write_facts(folder, replace(read_facts(folder), chat=False))
    page = visit(serve(load_model(folder, threads=1)))
    enter(page, "Inspect")
    expect(page.locator(".room pre")).to_have_text("python -m export inspect base")
    add_inspect(folder)
    page = visit(serve(load_model(folder, threads=1)))
    expect(page.locator(".rooms button")).to_have_text(["Text", "Inspect"])
    enter(page, "Inspect")
    press(page, "Look inside")
    expect(page.locator(".map canvas")).to_be_visible()
    expect(page.get_by_label("Layer", exact=True)).to_have_count(0)  # it has one layer


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_rooms_look_right_small_and_dark(
    visit: Visit, url: str, width: int, dark: bool
) -> None:
    page = visit(url, width, dark)
    for name in ("Translate", "Inspect"):
        enter(page, name)
        if name == "Translate":
            translate_it(page, LINES[0])
        else:
            press(page, "Look inside")
        expect(page.locator(".room:visible .map canvas")).to_be_visible()
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, "the page does not scroll sideways"
        kind = "dark" if dark else "light"
        page.screenshot(path=SCREENSHOTS / f"{name.lower()}-{width}-{kind}.png")
