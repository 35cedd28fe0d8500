"""The rooms Translate and Inspect in a real browser."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SCREENSHOTS
from playwright.sync_api import Browser, Locator, Page, expect

from export.folder.write import add_inspect
from gptcore.inspection import Inspector, inspect_text
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.build import build_page, launch_options
from gptcore.page.inspect import AFTER, ATTENTION, BEFORE, EMBEDDINGS, EXAMPLE, N_NEXT, POSITIONS
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import translate


def set_slider(page: Page, label: str, value: str) -> None:
    number = page.get_by_label(f"number input for {label}")
    number.fill(value)
    number.press("Tab")


expect.set_options(timeout=15_000)
LINES = ["跑猫红二。", "睡觉老鼠灰七。"]


def with_inspect(folder: Path, out: Path) -> OnnxModel:
    """A copy of a model folder that has onnx/inspect.onnx."""
    shutil.copytree(folder, out)
    add_inspect(out)
    return load_model(out, threads=1)


@pytest.fixture(scope="module")
def seen_model(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return with_inspect(model_folder, tmp_path_factory.mktemp("models") / "seen")


@pytest.fixture(scope="module")
def url(seen_model: OnnxModel, translator: OnnxTranslator) -> Iterator[str]:
    """The address of a page that has every tab."""
    sound = translator.bundle
    translator.bundle = replace(sound, facts=replace(sound.facts, examples=tuple(LINES)))
    page = build_page(seen_model, translator)
    _, url, _ = page.launch(prevent_thread_lock=True, **launch_options(Models(seen_model), page))
    yield url
    page.close()
    translator.bundle = sound


def open_tab(browser: Browser, url: str, name: str, width: int = 1280, dark: bool = False) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 860}, color_scheme="dark" if dark else "light"
    )
    page.set_default_timeout(15_000)
    page.goto(url)
    enter(page, name)
    return page


def enter(page: Page, name: str) -> None:
    """Choose a room in the view's bar."""
    page.locator(f'.rooms >> text="{name}"').click()


def source(page: Page) -> Locator:
    return page.get_by_label("Text", exact=True)


def target(page: Page) -> Locator:
    return page.locator("#translation textarea")


def press_translate(page: Page, text: str) -> None:
    source(page).fill(text)
    page.locator("#translate").get_by_role("button", name="Translate").click()


def cells(page: Page) -> Locator:
    """The rectangles of the heat map that is shown."""
    return page.locator(".heat-map:visible svg.marks .mark-rect.role-mark path")


def title(page: Page) -> Locator:
    return page.locator(".heat-map:visible svg.marks .role-title-text").first


def colours(page: Page) -> list[str]:
    return cells(page).evaluate_all("paths => paths.map(path => path.getAttribute('fill'))")


def wait_for_other_colours(page: Page, before: list[str]) -> list[str]:
    deadline = time.monotonic() + 10
    while colours(page) in (before, []):
        assert time.monotonic() < deadline, "the picture stayed the same"
        time.sleep(0.05)
    return colours(page)


def choose(page: Page, label: str, option: str | re.Pattern) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option).click()


def test_lines_are_translated_and_pictured(
    browser: Browser, url: str, translator: OnnxTranslator
) -> None:
    """Also: another sentence, layer and head draw another picture; nothing leaves the host."""
    page = open_tab(browser, url, "Translate")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    results = [translate(translator, line, beams=4) for line in LINES]
    press_translate(page, "\n".join(LINES))
    expect(target(page)).to_have_value("\n".join(result.text for result in results))
    sizes = [len(r.source_ids) * (len(r.target_ids) - 1) for r in results]
    expect(cells(page)).to_have_count(sizes[0])
    first = colours(page)
    choose(page, "Picture of sentence", re.compile(r"^2\."))
    expect(cells(page)).to_have_count(sizes[1])
    mean_of_layer_2 = wait_for_other_colours(page, first)
    choose(page, "Head", "head 1")
    head_1 = wait_for_other_colours(page, mean_of_layer_2)
    page.get_by_label("range slider for Layer").filter(visible=True).press("ArrowLeft")
    wait_for_other_colours(page, head_1)
    page.screenshot(path=SCREENSHOTS / "translate.png", full_page=True)

    set_slider(page, "Beams", "1")
    page.get_by_text(LINES[0], exact=True).click()  # an example
    expect(source(page)).to_have_value(LINES[0])
    source(page).press("Shift+Enter")
    expect(target(page)).to_have_value(translate(translator, LINES[0], beams=1).text)
    press_translate(page, "😀 ok")  # unknown to the model
    expect(page.locator("#translate-status")).to_contain_text("1 sentence")
    assert [r for r in requests if not r.startswith((url, "data:", "blob:"))] == []
    page.close()


def test_a_mistake_in_a_text_to_translate_loses_nothing(
    browser: Browser, url: str, translator: OnnxTranslator
) -> None:
    page = open_tab(browser, url, "Translate")
    press_translate(page, LINES[0])
    expect(cells(page).first).to_be_visible()
    for text, message in (
        (" ", "⚠ the text is empty"),
        ("跑\n" * 101, "⚠ the text has 101 lines"),
        (f"{LINES[0]}\n{'跑' * 40}", "⚠ sentence 2: the text has"),
    ):
        press_translate(page, text)
        expect(page.locator("#translate-status")).to_contain_text(message)
        expect(source(page)).to_have_value(text)
        expect(target(page)).to_have_value("")  # not the translation of another text
        expect(cells(page)).to_have_count(0)
    page.close()


def test_stop_keeps_what_is_translated_and_the_next_text_can_be_sent(
    browser: Browser, url: str, translator: OnnxTranslator
) -> None:
    page = open_tab(browser, url, "Translate")
    press_translate(page, "红蓝绿白黑灰红蓝绿白黑灰\n" * 100)
    status = page.locator("#translate-status")
    expect(status).to_contain_text("done")
    expect(page.locator("#translate").get_by_role("button", name="Translate")).to_be_disabled()
    page.get_by_role("button", name="Stop").click()
    expect(status).to_contain_text("stopped by you")
    assert 1 <= len(target(page).input_value().splitlines()) < 100
    press_translate(page, LINES[0])
    expect(target(page)).to_have_value(translate(translator, LINES[0], beams=4).text)
    page.close()


def test_a_closed_tab_ends_a_long_translation(
    browser: Browser, url: str, translator: OnnxTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    session = translator.session
    monkeypatch.setattr(translator, "session", lambda: (begun.append(1), session())[1])
    page = open_tab(browser, url, "Translate")
    set_slider(page, "Beams", "16")
    press_translate(page, "红蓝绿白黑灰红蓝绿白黑灰\n" * 100)
    expect(page.locator("#translate-status")).to_contain_text("done")
    page.close()
    time.sleep(1.0)  # for the line that is being translated
    n = len(begun)
    time.sleep(1.0)
    assert len(begun) == n < 100


def test_inspect_shows_tokens_next_tokens_and_every_picture(
    browser: Browser, url: str, seen_model: OnnxModel
) -> None:
    page = open_tab(browser, url, "Inspect")
    seen = inspect_text(Inspector(seen_model.bundle), EXAMPLE, N_NEXT)
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator("#inspect-status")).to_have_text(f"{len(seen.tokens)} tokens")
    for token_id in seen.token_ids:
        expect(page.get_by_text(str(token_id), exact=True).first).to_be_visible()
    likeliest = [round(100 * probability) for _, probability in seen.next_tokens]
    expect(page.locator(".confidence")).to_have_text([f"{share}%" for share in likeliest])
    assert 0 < sum(likeliest) <= 101, "and one for the rounding"

    n, width = len(seen.tokens), min(64, seen.embeddings.shape[1])
    sizes = {ATTENTION: n * n, BEFORE: n * n, AFTER: n * (n + 1) // 2, EMBEDDINGS: n * width}
    sizes[POSITIONS] = n * min(64, seen.positions.shape[1])
    for picture, size in sizes.items():
        choose(page, "Picture", picture)
        expect(title(page)).to_contain_text(picture.capitalize())
        expect(cells(page)).to_have_count(size)
    choose(page, "Picture", AFTER)
    expect(title(page)).to_have_text("Scores after the mask, layer 1, head 1")
    page.screenshot(path=SCREENSHOTS / "inspect.png", full_page=True)
    sliders = (page.get_by_label(f"range slider for {name}").last for name in ("Layer", "Head"))
    for slider in sliders:
        slider.press("End")  # by keyboard
    n_layer, n_head = seen.attention.shape[:2]
    last = f"Scores after the mask, layer {n_layer}, head {n_head}"
    expect(title(page)).to_have_text(last)

    box = page.get_by_placeholder("Type a text")
    for text, message in (
        ("a b " * 100, "⚠ the text has"),
        ("x" * 100_000, "⚠ the text is too long"),
        (" ", "⚠ the text is empty"),
    ):
        box.fill(text)
        box.press("Enter")
        expect(page.locator("#inspect-status")).to_contain_text(message)
        expect(box).to_have_value(text)
        expect(title(page)).to_have_count(0)  # not the picture of another text
    page.close()


def test_a_base_model_has_text_and_inspect(
    browser: Browser, base_model: OnnxModel, serve: Callable[..., str], tmp_path: Path
) -> None:
    model = with_inspect(base_model.bundle.path, tmp_path / "base")
    page = open_tab(browser, serve(model), "Inspect")
    assert page.locator(".rooms button").all_inner_texts() == ["Text", "Inspect"]
    page.get_by_role("button", name="Look inside").click()
    expect(cells(page).first).to_be_visible()
    expect(page.get_by_label("range slider for Layer")).to_have_count(0)  # it has one layer
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_pictures_look_right_small_and_dark(
    browser: Browser, url: str, width: int, dark: bool
) -> None:
    page = open_tab(browser, url, "Translate", width, dark)
    for name, button in (("Translate", "Translate"), ("Inspect", "Look inside")):
        enter(page, name)
        if name == "Translate":
            source(page).fill(LINES[0])
        page.locator(f"#{name.lower()}").get_by_role("button", name=button).click()
        expect(cells(page).first).to_be_visible()
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, "the page does not scroll sideways"
        ink = title(page).evaluate(
            "e => getComputedStyle(e.matches('text') ? e : e.querySelector('text')).fill"
        )
        assert (sum(map(int, re.findall(r"\d+", ink)[:3])) / 3 > 150) == dark
        frame = page.locator(".heat-map:visible .altair")
        left = frame.evaluate(
            "e => e.querySelector('svg.marks').getBoundingClientRect().left"
            " - e.getBoundingClientRect().left"
        )
        assert left >= 0, "the picture's beginning can be reached"
        kind = "dark" if dark else "light"
        page.screenshot(path=SCREENSHOTS / f"{name.lower()}-{width}-{kind}.png", full_page=True)
    page.close()
