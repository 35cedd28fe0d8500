"""The static site when its worker fails, or the connection breaks off in the middle of a file."""

from pathlib import Path
from threading import Event

import pytest
from in_browser import talk
from playwright.sync_api import expect
from sites import Open, Quiet, build, holding, starved, whole_numbers

pytestmark = pytest.mark.peers

BELIEVED = "navigator.gpu.requestAdapter = async () => ({ info: {} });"
SHORT = 500  # bytes of a file that arrive before the connection breaks off


def test_a_worker_without_memory_is_told_and_another_one_tries_again(
    model_folder: Path, open_page: Open, tmp_path: Path
) -> None:
    """But none tries without the GPU, which is not used for whole numbers."""
    folder = whole_numbers(model_folder, tmp_path / "tiny")
    page = open_page(build(folder, tmp_path / "some" / "site"), script=BELIEVED + starved(1))
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".notice.error")).to_contain_text("memory")
    assert page.evaluate("nWorkers") == 1
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".device")).to_contain_text("WebAssembly")
    assert talk(page, "Hello!")


@pytest.mark.parametrize("name", ["tokenizer.json", "ort.wasm.min.mjs", "simd-threaded.mjs"])
def test_a_connection_that_breaks_off_in_a_small_file_is_told_and_tried_again(
    site: Path, open_page: Open, name: str
) -> None:
    class Breaking(Quiet):
        has_broken = False

        def copyfile(self, source, outputfile) -> None:
            breaks = name in self.path and not Breaking.has_broken
            Breaking.has_broken |= breaks
            outputfile.write(source.read(SHORT if breaks else -1))

    page = open_page(site, handler=Breaking, service_workers="block")
    page.get_by_role("button", name="Download").click()
    told = page.locator(".notice.error")
    expect(told).to_contain_text(name)
    expect(told).to_contain_text("could not be downloaded")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".device")).to_contain_text("WebAssembly")
    assert talk(page, "Hello!")


def test_a_download_is_shown_in_every_room_and_offered_in_every_language(
    inspectable: Path, open_page: Open, tmp_path: Path
) -> None:
    arrives = Event()
    page = open_page(build(inspectable, tmp_path / "some" / "site"), handler=holding(arrives))
    offer = page.locator(".foot .notice")
    expect(offer).to_contain_text("are downloaded once")
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="English").click()
    expect(offer).to_contain_text("are downloaded once")
    page.get_by_role("button", name="Inspect").click()
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator(".room progress")).to_be_visible()
    page.get_by_role("button", name="Chat", exact=True).click()
    expect(offer.locator("progress")).to_be_visible()
    arrives.set()
    expect(page.locator(".device")).to_contain_text("WebAssembly")
    expect(offer).to_be_hidden()
    page.get_by_role("button", name="Inspect").click()
    expect(page.locator(".map canvas")).to_be_visible()
    assert page.errors == []
