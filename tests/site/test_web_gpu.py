"""The static site on WebGPU, which Chromium's software adapter computes on the CPU."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_browser import say, set_number, talk
from playwright.sync_api import Browser, expect
from sites import Open, build, our_reply, set_greedy, shown, user

from gptcore.bundle import read_facts, write_facts
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers
ON_CPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
# The page would not take such an adapter, since WebAssembly is faster.
TAKEN = "Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', { value: false })"
LONG_MS = 120_000  # the adapter compiles every kernel


@pytest.fixture(scope="module")
def browser(browser: Browser) -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", *ON_CPU]
    running = browser.browser_type.launch(executable_path=chromium, args=arguments)
    yield running
    running.close()


def test_a_gpu_writes_the_same_tokens(site: Path, open_page: Open, model: OnnxModel) -> None:
    page = open_page(site, script=TAKEN)
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".device")).to_contain_text("WebGPU", timeout=LONG_MS)
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "12")
    say(page, "Hello!")
    expect(page.locator(".figures")).to_be_visible(timeout=LONG_MS)
    expect(page.locator(".send.halt")).to_be_hidden(timeout=LONG_MS)
    reply = page.locator(".message.assistant .body").last.inner_text()
    assert shown(reply) == shown(our_reply(model, [user("Hello!")], 12))


def test_a_site_of_whole_numbers_alone_does_without_the_gpu(
    model_folder: Path, open_page: Open, model: OnnxModel, tmp_path: Path
) -> None:
    """WebGPU cannot run the 8-bit file, which is all that a small copy of a model has."""
    folder = shutil.copytree(model_folder, tmp_path / "tiny")
    (folder / "onnx/model.onnx").rename(folder / "onnx/model_quantized.onnx")
    write_facts(folder, read_facts(folder))
    page = open_page(build(folder, tmp_path / "some" / "site"), script=TAKEN)
    expect(page.locator(".foot .notice")).to_contain_text(re.compile(r"\d MB are downloaded"))
    set_greedy(page, 8)
    assert "WebAssembly" in page.locator(".device").inner_text()
    assert shown(talk(page, "Hello!")[-1]) == shown(our_reply(model, [user("Hello!")], 8))
