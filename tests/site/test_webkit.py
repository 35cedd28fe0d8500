"""The page and the site in one file in WebKit, the engine of Safari."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import SECONDS
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import WebKitGTK, WebKitGTKOptions
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from selenium.webdriver.webkitgtk.service import Service
from sites import our_reply, shown, user

from benchmarks.pages.window import display
from export.__main__ import main
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers

BOX, REPLY, STOP = ".composer .box", ".message.assistant .body", ".send.halt"
SET = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
TEXT = "My name is Ada. What is your name?"


@pytest.fixture
def webkit() -> Iterator[WebKitGTK]:
    driver = shutil.which("WebKitWebDriver")
    assert driver, "this needs WebKit: apt-get install webkit2gtk-driver"
    options = WebKitGTKOptions()
    options.binary_location = str(next(Path("/usr/lib").rglob("webkit2gtk-*/MiniBrowser")))
    options.add_argument("--automation")
    with display() as name:
        service = Service(driver, env=os.environ | {"DISPLAY": name})
        with WebKitGTK(options, service) as browser:
            yield browser


def check_chat(browser: WebKitGTK, url: str, model: OnnxModel) -> None:
    """A greedy reply is our own engine's, also after a reload."""
    # a page that draws itself anew may replace an element between its finding and its reading
    wait = WebDriverWait(browser, SECONDS, ignored_exceptions=[StaleElementReferenceException])

    def find(selector: str):
        return wait.until(lambda _: browser.find_element(By.CSS_SELECTOR, selector))

    browser.get(url)
    find(BOX)
    for label, value in (("Temperature", 0), ("Max tokens", 24)):
        browser.execute_script(SET, find(f"input[aria-label='{label}']"), value)
    find("[aria-label='As plain text']").click()
    find(BOX).send_keys(TEXT + Keys.ENTER)
    expected = shown(our_reply(model, [user(TEXT)], 24))
    for _ in range(2):
        wait.until(lambda _: shown(find(REPLY).text) == expected)
        wait.until_not(
            lambda _: find(STOP).is_displayed()
        )  # its end, and not its text alone, is kept
        browser.refresh()


def test_the_page_chats(webkit: WebKitGTK, serve: Callable[..., str], model: OnnxModel) -> None:
    check_chat(webkit, serve(model), model)


def test_a_site_in_one_file_chats(
    webkit: WebKitGTK, model_folder: Path, model: OnnxModel, tmp_path: Path
) -> None:
    """Its worker can import no address that it made of a file's content."""
    file = tmp_path / "chat.html"
    assert main(["web", str(model_folder), "--single-file", "--out", str(file)]) == 0
    check_chat(webkit, file.as_uri(), model)
