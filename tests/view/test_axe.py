"""The view is accessible: axe-core finds nothing, in every state, light and dark."""

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NANO, Visit
from in_browser import enter, say, talk, wait_for_the_end
from playwright.sync_api import Page, expect

from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.train.workbench import Workbench
from gptcore.translation.onnx import OnnxTranslator

pytestmark = pytest.mark.peers

AXE = "axe-core@4.14.1"
RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((n) => n.html.slice(0, 120))}`);
}"""
SMALL = """() => [...document.querySelectorAll(":is(button, summary, input, select):is(.gpt *)")]
    .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest("p"))
    .map((e) => [e.getBoundingClientRect(), e.outerHTML.slice(0, 80)])
    .filter(([r]) => r.width && (r.width < 24 || r.height < 24)).map(([, html]) => html)"""
RICH = (
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n$x^2$ [a](https://b.c) > q\n\n# h"
)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, npm = tmp_path_factory.mktemp("axe"), shutil.which("npm")
    assert npm, "this test needs npm: apt-get install npm"
    words = [npm, "pack", AXE, "--silent", "--ignore-scripts"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=300)
    [archive] = folder.glob("*.tgz")
    with tarfile.open(archive) as content:
        found = content.extractfile("package/axe.min.js")
        assert found
        return found.read().decode()


@pytest.fixture(scope="module")
def url(
    inspectable: Path,
    translator: OnnxTranslator,
    serve: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """A page that has every room, and a choice of models."""
    folder = tmp_path_factory.mktemp("models") / "seen"
    shutil.copytree(inspectable, folder)
    bench = Workbench(folder.parent / "runs", folder.parent, str)
    return serve(Models(load_model(folder, threads=1), [NANO]), translator, bench)


@pytest.fixture(params=[(1280, False), (1280, True), (390, False)], ids=["light", "dark", "small"])
def page(visit: Visit, url: str, request: pytest.FixtureRequest) -> Page:
    return visit(url, *request.param, reduced_motion="reduce")


def check(page: Page, axe: str) -> None:
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe)
    assert page.evaluate(RUN) == []
    assert page.evaluate(SMALL) == [], "targets are at least 24 pixels wide and high"


def show_settings(page: Page) -> None:
    if not page.locator("aside.settings").is_visible():
        page.get_by_role("button", name="Settings").click()


def test_nothing_is_found_in_any_state_of_a_chat(page: Page, axe: str) -> None:
    check(page, axe)  # an empty chat
    show_settings(page)
    page.get_by_text("More settings").click()
    page.get_by_role("button", name="+ Save as preset").click()
    check(page, axe)
    page.locator("#rival").select_option("gptcore nano")
    if page.locator(".curtain").is_visible():
        page.mouse.click(20, 500)
    say(page, RICH)
    wait_for_the_end(page)
    expect(page.locator(".versus .message")).to_have_count(2)
    wait_for_the_end(page)
    check(page, axe)  # two models side by side
    show_settings(page)
    page.get_by_role("button", name="Tint by probability").click()
    if page.locator(".curtain").is_visible():
        page.mouse.click(20, 500)
    page.locator(".message.assistant").last.hover()
    check(page, axe)
    if page.locator(".token").count():
        page.locator(".token").first.click()
        check(page, axe)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="What the model read").last.click()
    expect(page.locator("dialog")).to_be_visible()
    check(page, axe)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit").last.click()
    check(page, axe)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("nothing that is here")
    check(page, axe)


def test_nothing_is_found_in_the_rooms(page: Page, axe: str) -> None:
    enter(page, "Inspect")
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator(".map canvas")).to_be_visible()
    page.get_by_text("The shapes").click()
    check(page, axe)
    for picture in ("after", "embeddings", "positions"):
        page.get_by_label("Picture", exact=True).select_option(picture)
        check(page, axe)
    enter(page, "Translate")
    check(page, axe)
    page.get_by_label("Text", exact=True).fill("跑猫红二。")
    page.locator(".room:visible").get_by_role("button", name="Translate").click()
    expect(page.locator(".room:visible .map canvas")).to_be_visible()
    check(page, axe)
    enter(page, "Train")
    chats = b"question,answer\nHow are you?,I am well.\nWho are you?,A model.\n"
    page.set_input_files("#texts", {"name": "a.csv", "mimeType": "text/csv", "buffer": chats})
    expect(page.get_by_label("What is in the texts")).to_contain_text("2 conversations")
    page.get_by_text("More about the files").click()
    page.get_by_role("spinbutton", name="Minutes").fill("0")  # which is refused beside the field
    check(page, axe)
    page.get_by_role("button", name="Remove a.csv").click()


def test_nothing_is_found_in_chinese_and_at_twice_the_size(
    visit: Visit, url: str, axe: str
) -> None:
    page = visit(url, 640, locale="zh-CN")  # 1,280 pixels at 200 %
    talk(page, "Hello!")
    check(page, axe)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_nothing_is_found_on_a_base_models_page(
    visit: Visit, base_model: OnnxModel, serve: Callable[..., str], axe: str
) -> None:
    page = visit(serve(base_model))
    page.get_by_role("textbox", name="Text", exact=True).fill("Once upon a time")
    page.get_by_role("button", name="Continue", exact=True).click()
    expect(page.get_by_role("button", name="Undo")).to_be_enabled()
    check(page, axe)
    page.get_by_role("button", name="Keyboard").click()
    check(page, axe)
