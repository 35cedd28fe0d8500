"""The static site: downloads, visits without a network, odd files, and what it may not do."""

import json
import os
import re
import shutil
from pathlib import Path
from threading import Event

import pytest
from in_browser import box, replies, say, set_number, talk, wait_for_the_end
from playwright.sync_api import Browser, expect
from sites import (
    Isolated,
    Open,
    Quiet,
    build,
    check_hosts_forbidden,
    download,
    holding,
    our_reply,
    set_greedy,
    shown,
    user,
)

from gptcore.bundle import read_facts, write_facts
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers

# The service worker is there, which it is once it has them.
SMALL_FILES_ARE_KEPT = "() => navigator.serviceWorker.ready.then(() => null)"


def test_what_cannot_be_answered_is_refused_in_words(site: Path, open_page: Open) -> None:
    page = open_page(site)
    set_greedy(page, 8)
    huge = "word " * 20_000
    say(page, huge)
    expect(page.locator(".notice.error")).to_contain_text("too long: it has 100,000 characters")
    assert box(page).input_value() == huge and replies(page).count() == 0
    say(page, "🦜" * 300)
    expect(page.locator(".notice.error")).to_contain_text("is too long: it needs")
    page.get_by_role("button", name="中文").click()
    say(page, huge)
    expect(page.locator(".notice.error")).to_contain_text("文本太长：有 100,000 个字符")
    talk(page, "Hello!")  # goes on
    expect(page.locator(".notice")).to_be_hidden()


def test_the_size_is_told_and_a_second_visit_needs_no_network(
    site: Path, open_page: Open, model: OnnxModel
) -> None:
    class Pages(Quiet):  # GitHub Pages make README.html of it
        def do_GET(self) -> None:
            self.send_error(404) if self.path.endswith("README.md") else super().do_GET()

    page = open_page(site, handler=Pages)
    expect(page.locator(".notice")).to_contain_text(re.compile(r"1\d\.\d MB are downloaded once"))
    set_greedy(page, 8)
    reply = talk(page, "Hello!")[-1]
    page.evaluate(SMALL_FILES_ARE_KEPT)
    page.server.shutdown()
    page.server.server_close()
    page.reload()
    expect(replies(page)).to_have_text([reply])
    expect(page.locator(".device")).not_to_be_empty()  # nothing is to be downloaded
    page.get_by_role("button", name="New chat").first.click()
    assert talk(page, "Hello!")[-1] == reply
    assert [e for e in page.errors if "Failed to load resource" not in e] == []


# Asks for a page and for a file of the site; the names of what the service worker has kept.
KEPT = """async () => {
    await Promise.all([fetch("blog/index.html"), fetch("site.json")]);
    const kept = await (await caches.open("gptcore-site")).keys();
    return kept.map(({ url }) => url.split("/").at(-2) + "/" + url.split("/").at(-1));
}"""


def test_a_new_version_shows_at_the_next_visit_and_other_pages_of_the_host_are_left_alone(
    site: Path, open_page: Open, tmp_path: Path
) -> None:
    copy = shutil.copytree(site, tmp_path / "some" / "site")
    for path in filter(Path.is_file, copy.rglob("*")):
        os.utime(path, (0, 0))  # of old files, a browser asks for no new ones for days
    page = open_page(copy)
    download(page)
    page.evaluate(SMALL_FILES_ARE_KEPT)
    with (copy / "site.js").open("a", encoding="utf-8") as script:
        script.write("document.body.dataset.version = 2;")
    facts = json.loads((copy / "site.json").read_text(encoding="utf-8"))
    (copy / "site.json").write_text(json.dumps(facts | {"name": "renamed"}), encoding="utf-8")
    page.reload()
    expect(page.locator(".bar .name")).to_have_text("renamed")
    expect(page.locator("body")).to_have_attribute("data-version", "2")
    (copy / "blog").mkdir()
    (copy / "blog" / "index.html").write_text("Monday", encoding="utf-8")
    kept = page.evaluate(KEPT)
    assert "site/site.json" in kept and "blog/index.html" not in kept


def test_it_can_be_installed(site: Path, open_page: Open) -> None:
    page = open_page(site)
    session = page.context.new_cdp_session(page)
    found = session.send("Page.getAppManifest")
    assert found["errors"] == [] and json.loads(found["data"])["name"] == "tiny"
    assert session.send("Page.getInstallabilityErrors")["installabilityErrors"] in (
        [],
        [{"errorId": "in-incognito", "errorArguments": []}],
    )
    for icon in json.loads(found["data"])["icons"]:
        assert page.request.get(f"{page.url}{icon['src']}").ok


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("site.json", "site.json is missing from this site"),
        ("models/tiny/onnx/model.onnx", "models/tiny/onnx/model.onnx is missing from this site"),
        ("models/tiny/tokenizer.json", "models/tiny/tokenizer.json is missing from this site"),
        ("vendor/tokenizers.min.mjs", "a file of vendor/ is missing"),
        ("vendor/ort.wasm.min.mjs", "ort.wasm.min.mjs"),
    ],
)
def test_a_missing_file_is_told(
    site: Path, open_page: Open, tmp_path: Path, name: str, said: str
) -> None:
    broken = shutil.copytree(site, tmp_path / "some" / "site")
    (broken / name).unlink()
    page = open_page(broken)
    button = page.get_by_role("button", name="Download")
    told = page.locator(".notice.error").or_(page.locator("#view").get_by_text("missing"))
    expect(button.or_(told).first).to_be_visible()
    if button.is_visible():
        button.click()
    expect(told.first).to_contain_text(said)
    expect(box(page)).to_have_count(int(name != "site.json"))  # chats can be read and exported


def test_a_damaged_download_is_told_and_tried_again(
    site: Path, open_page: Open, tmp_path: Path
) -> None:
    broken = shutil.copytree(site, tmp_path / "some" / "site")
    graph = broken / "models" / "tiny" / "onnx" / "model.onnx"
    content = graph.read_bytes()
    graph.write_bytes(content[:1000])
    page = open_page(broken)
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".notice.error")).to_contain_text("model.onnx could not be downloaded")
    damaged = graph.stat()
    graph.write_bytes(content)
    os.utime(graph, ns=(damaged.st_atime_ns, damaged.st_mtime_ns))  # a server calls it unmodified
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".device")).not_to_be_empty()
    talk(page, "Hello!")


def test_stop_and_another_chat_need_not_wait_for_the_download(site: Path, open_page: Open) -> None:
    arrives = Event()
    page = open_page(site, handler=holding(arrives))
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    say(page, "Hello!")
    page.get_by_role("button", name="Stop").click()
    expect(replies(page)).to_have_text(["(no text)"])
    expect(page.locator(".send.halt")).to_be_hidden()
    page.get_by_role("button", name="New chat").first.click()
    expect(page.locator(".message")).to_have_count(0)
    say(page, "Good morning!")
    expect(page.locator(".send.halt")).to_be_visible()
    arrives.set()
    wait_for_the_end(page)
    expect(replies(page)).to_have_count(1)
    expect(page.locator(".foot .notice")).to_be_hidden()
    assert page.errors == []


def test_a_message_may_be_sent_before_the_page_knows_its_device(
    site: Path, open_page: Open
) -> None:
    page = open_page(
        site,
        script="""Object.defineProperty(navigator, "gpu", { value: {
            requestAdapter: () => new Promise((found) => setTimeout(() => found(null), 2000)),
        } });""",
    )
    assert talk(page, "Hello!")
    assert page.errors == []


def test_a_page_that_is_opened_as_a_file_says_so(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    expect(page.locator("#view")).to_contain_text("it needs a web server")
    page.close()


def test_the_quantised_file_is_taken_where_there_is_one(
    model_folder: Path, open_page: Open, model: OnnxModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "tiny")
    shutil.copyfile(folder / "onnx/model.onnx", folder / "onnx/model_quantized.onnx")
    write_facts(folder, read_facts(folder))
    page = open_page(build(folder, tmp_path / "some" / "site"))
    assert "model_quantized.onnx" in download(page)
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", "8")
    assert shown(talk(page, "Hello!")[-1]) == shown(our_reply(model, [user("Hello!")], 8))


def test_threads_where_the_headers_allow_them_and_no_gpu_that_does_not_work(
    site: Path, open_page: Open
) -> None:
    """The page believes in a GPU, its worker finds none: it takes WebAssembly."""
    page = open_page(
        site, script="navigator.gpu.requestAdapter = async () => ({ info: {} })", handler=Isolated
    )
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    n_threads = min(page.evaluate("navigator.hardwareConcurrency"), 4)
    assert f"WebAssembly ({n_threads} thread" in download(page)
    talk(page, "Hello!")


def test_other_hosts_are_forbidden_to_the_page_and_its_worker(site: Path, open_page: Open) -> None:
    page = open_page(site)
    download(page)
    check_hosts_forbidden(page)
