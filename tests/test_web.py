"""The static site of `python -m export web`: built, served by a plain server, and really used.

It is served from a subfolder, and every request of every test must stay on its host.
"""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from conftest import SCREENSHOTS
from in_browser import asked, box, new_tab, replies, say, set_number, talk, wait_for_the_end
from playwright.sync_api import Browser, Page, expect

from export.__main__ import main
from gptcore.bundle import read_facts, write_facts
from gptcore.engine.generate import chat, chat_request, complete
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers

GREEDY = Sampling(temperature=0)
NOBODY = "https://example.com/"
NO_GPU = "delete Navigator.prototype.gpu"
Open = Callable[..., Page]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


class Isolated(Quiet):
    """With the headers that a static Space sends, under which a page may use threads."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


def build(model_folder: Path, out: Path) -> Path:
    assert shutil.which("npm"), "the page's runtime comes from npm: install Node.js with npm"
    assert main(["web", str(model_folder), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def site(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(model_folder, tmp_path_factory.mktemp("host") / "some" / "site")


@pytest.fixture(scope="module")
def base_site(base_model: OnnxModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(base_model.bundle.path, tmp_path_factory.mktemp("host") / "some" / "base")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Serves a site and opens it; at the end no request may have gone to another host."""
    servers, pages, urls = [], [], []

    def open_it(
        site: Path, width: int = 1280, dark: bool = False, script: str = NO_GPU,
        handler: type = Quiet, **more,
    ) -> Page:  # fmt: skip
        handle = partial(handler, directory=site.parent.parent)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handle)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        page = new_tab(browser, "about:blank", width, dark, **more)
        page.on("request", lambda request: urls.append(request.url.removeprefix("blob:")))
        page.add_init_script(script)
        page.server = server
        pages.append(page)
        page.goto(f"http://127.0.0.1:{server.server_port}/{site.parent.name}/{site.name}/")
        return page

    yield open_it
    for page, server in zip(pages, servers):
        page.context.close()
        server.shutdown()
        server.server_close()
    hosts = tuple(f"http://127.0.0.1:{server.server_port}/" for server in servers)
    assert [u for u in urls if u.startswith(hosts)]
    assert not [u for u in urls if not u.startswith((*hosts, "about:", "data:"))]


def download(page: Page) -> str:
    """Let the model be downloaded; the line that says what it runs on."""
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".device")).not_to_be_empty()
    expect(page.locator(".notice")).to_be_hidden()
    return page.locator(".device").inner_text()


def set_greedy(page: Page, max_tokens: int) -> None:
    download(page)
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", str(max_tokens))


def our_reply(model: OnnxModel, messages: list[dict[str, str]], max_tokens: int) -> str:
    return "".join(piece.text for piece in chat(model, messages, GREEDY, max_tokens))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def shown(text: str) -> str:
    """A reply as Markdown shows it, but for white space."""
    return "".join(text.split())


def test_replies_are_our_own_greedy_ones(site: Path, open_page: Open, model: OnnxModel) -> None:
    """Two turns; text that looks like a special token; emoji; white space; another script."""
    page = open_page(site)
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

    page.get_by_role("button", name="Answer again").or_(
        page.get_by_role("button", name="Regenerate")
    ).last.click()
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
        assert abs(float(share.rstrip(" %")) - 100 * math.exp(logprob)) < 0.6
    page.locator(".alternative:enabled").first.click()
    expect(page.locator(".versions")).to_have_text("2/2")
    wait_for_the_end(page)
    page.get_by_role("button", name="What the model read").last.click()
    assert page.locator("dialog .token").count() == len(request.ids)


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
    expect(page.locator(".notice.error")).to_contain_text("消息太长：有 100,000 个字符")
    talk(page, "Hello!")  # goes on
    expect(page.locator(".notice")).to_be_hidden()


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
    assert shown(talk(page, "Hello!")[-1]) == shown(greedy[: greedy.find(greedy[2:4])])


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


def test_the_size_is_told_and_a_second_visit_needs_no_network(
    site: Path, open_page: Open, model: OnnxModel
) -> None:
    page = open_page(site)
    expect(page.locator(".notice")).to_contain_text(re.compile(r"1\d\.\d MB are downloaded once"))
    set_greedy(page, 8)
    reply = talk(page, "Hello!")[-1]
    page.wait_for_timeout(500)  # the service worker keeps the small files
    page.server.shutdown()
    page.server.server_close()
    page.reload()
    expect(replies(page)).to_have_text([reply])
    expect(page.locator(".device")).not_to_be_empty()  # nothing is to be downloaded
    page.get_by_role("button", name="New chat").first.click()
    assert talk(page, "Hello!")[-1] == reply
    assert [e for e in page.errors if "Failed to load resource" not in e] == []


def test_a_new_version_shows_at_the_next_visit(site: Path, open_page: Open, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "some" / "site")
    page = open_page(copy)
    download(page)
    page.wait_for_timeout(500)
    facts = json.loads((copy / "site.json").read_text(encoding="utf-8"))
    (copy / "site.json").write_text(json.dumps(facts | {"name": "renamed"}), encoding="utf-8")
    page.reload()
    expect(page.locator(".bar .name")).to_have_text("renamed")


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
    graph.write_bytes(content)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".device")).not_to_be_empty()
    talk(page, "Hello!")


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
    violation = """(url) => new Promise((resolve) => {
        addEventListener("securitypolicyviolation", (event) => resolve(event.blockedURI));
        fetch(url).catch(() => {});
    })"""
    assert page.evaluate(violation, NOBODY) == NOBODY
    assert page.workers[0].evaluate(violation, NOBODY) == NOBODY


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_it_looks_right_small_and_dark(site: Path, open_page: Open, width: int, dark: bool) -> None:
    page = open_page(site, width=width, dark=dark)
    download(page)
    talk(page, "W" * 100)
    page.screenshot(path=SCREENSHOTS / f"web-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.errors == []
