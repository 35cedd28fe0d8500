"""What a person may choose on Train, in a real browser: the start, adapters, the minutes."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NANO, Visit
from in_browser import enter, give, press, serve_train, shop, status, talk
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

LONG_MS = 120_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(NANO, home / "models" / "nano")
    return home


@pytest.fixture(scope="module")
def url(home: Path, serve: Callable[..., str]) -> str:
    return serve_train(serve, home)


@pytest.fixture(autouse=True)
def nothing_begun(home: Path) -> None:
    shutil.rmtree(home / "runs", ignore_errors=True)


def test_a_model_is_trained_further_by_adapters_alone(page: Page, home: Path) -> None:
    enter(page, "Train")
    give(page, ("shop.csv", shop()))
    adapters = page.get_by_role("checkbox", name="Small adapters only (LoRA)")
    expect(page.get_by_label("What is in the texts")).to_contain_text("96 conversations")
    expect(page.get_by_label("Begin with")).to_have_value("")
    expect(adapters).to_be_hidden()  # a new model has nothing to be adapted
    page.get_by_label("Begin with").select_option(label="gptcore nano")
    expect(adapters).not_to_be_checked()
    adapters.check()
    page.get_by_role("spinbutton", name="Minutes").fill("0.25")
    page.get_by_label("Name of the model").fill("adapted")
    with page.expect_response("**/train/state"):
        pass  # what the server does not know yet stays
    expect(adapters).to_be_checked()
    press(page, "Train")
    expect(status(page)).to_contain_text("complete", timeout=LONG_MS)
    assert json.loads((home / "runs" / "adapted" / "config.json").read_text())["train"]["lora"]
    press(page, "Chat with it")
    expect(page).to_have_url(re.compile(r"\?model=adapted$"), timeout=LONG_MS)
    [answer] = talk(page, "Is the red lamp in stock?")
    assert "in stock" in answer
    enter(page, "Inspect")  # the export has written what it needs
    expect(page.get_by_role("group", name="tokens").get_by_role("button").first).to_be_visible()


def test_what_was_chosen_stays_in_another_language(visit: Visit, url: str) -> None:
    page = visit(url)
    enter(page, "Train")
    page.get_by_label("Begin with").select_option(label="gptcore nano")
    page.get_by_role("checkbox", name="Small adapters only").check()
    page.get_by_role("button", name="中文").click()
    expect(page.locator("#train-start")).to_have_value("nano")
    expect(page.get_by_role("checkbox", name="只训练小型适配器")).to_be_checked()


def test_minutes_that_the_server_would_refuse_are_refused_beside_their_field(page: Page) -> None:
    enter(page, "Train")
    minutes = page.get_by_role("spinbutton", name="Minutes")
    expect(minutes).to_have_value("10")
    told = page.get_by_text("Minutes must be a number from 0.1 to 1,440")
    expect(told).to_have_count(0)
    for unfit, fit in (("0", "0.1"), ("99999", "1440"), ("", "5")):
        minutes.fill(unfit)
        expect(told).to_be_visible()
        expect(minutes).to_have_attribute("aria-invalid", "true")
        minutes.fill(fit)
        expect(told).to_have_count(0)
    minutes.fill("0")
    page.get_by_role("slider", name="Minutes").fill("7")
    expect(told).to_have_count(0)
    expect(minutes).to_have_value("7")
    minutes.fill("0")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_text("分钟数须为 0.1 到 1,440 之间的数字")).to_be_visible()
