"""The static site on WebGPU, which Chromium's software adapter computes on the CPU."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_browser import CHROMIUM_ARGUMENTS, replies, say, set_number, talk
from playwright.sync_api import Browser, expect
from sites import Open, build, our_reply, set_greedy, shown, user, whole_numbers

from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers
ON_CPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
# The page would not take such an adapter, since WebAssembly is faster.
TAKEN = "Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', { value: false })"
LONG_MS = 120_000  # the adapter compiles every kernel


@pytest.fixture(scope="module")
def browser(browser: Browser) -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    arguments = [*CHROMIUM_ARGUMENTS, *ON_CPU]
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


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_gpu_that_is_lost_leaves_the_rest_to_another_worker(
    inspectable: Path, open_page: Open, tmp_path: Path, is_idle: bool
) -> None:
    """Inspect, which waits for the reply, goes on without the GPU; so does the conversation."""
    page = open_page(build(inspectable, tmp_path / "some" / "site"), script=TAKEN)
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    (worker,) = page.workers
    worker.evaluate(
        "const { requestDevice } = GPUAdapter.prototype;"
        "GPUAdapter.prototype.requestDevice = async function (wanted) {"
        "    return (self.gpuDevice = await requestDevice.call(this, wanted));"
        "};"
        "null"  # else the function is called
    )
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".device")).to_contain_text("WebGPU", timeout=LONG_MS)
    say(page, "Hello!")
    expect(replies(page).last).not_to_be_empty(timeout=LONG_MS)
    if is_idle:  # as when the machine sleeps
        expect(page.locator(".send.halt")).to_be_hidden(timeout=LONG_MS)
    page.get_by_role("button", name="Inspect").click()
    page.get_by_label("Text to look at").fill("My name is Ada.")
    worker.evaluate("self.gpuDevice.destroy()")
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator(".map canvas")).to_be_visible(timeout=LONG_MS)
    page.get_by_role("button", name="Chat", exact=True).click()
    talk(page, "Hello!")  # notices the loss if the first reply had ended before it
    expect(page.locator(".notice:visible")).to_have_count(0)
    expect(page.locator(".device")).to_contain_text("WebAssembly")


def test_a_site_of_whole_numbers_alone_does_without_the_gpu(
    model_folder: Path, open_page: Open, model: OnnxModel, tmp_path: Path
) -> None:
    """As a small copy of a model has."""
    folder = whole_numbers(model_folder, tmp_path / "tiny")
    page = open_page(build(folder, tmp_path / "some" / "site"), script=TAKEN)
    expect(page.locator(".foot .notice")).to_contain_text(re.compile(r"\d MB are downloaded"))
    set_greedy(page, 8)
    assert "WebAssembly" in page.locator(".device").inner_text()
    assert shown(talk(page, "Hello!")[-1]) == shown(our_reply(model, [user("Hello!")], 8))
