"""The static page of `python -m export web`: built, served by a plain server, and really used.

It is served from a subfolder, and every request of every test must stay on its host.
"""

import json
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from conftest import SCREENSHOTS, Refused
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from export.__main__ import main
from export.ship.web import SITE_SETTINGS
from gptcore.bundle import read_facts, write_facts
from gptcore.config import PRESETS
from gptcore.engine.generate import chat, complete
from gptcore.engine.sampling import SETTINGS, Sampling
from gptcore.facts import ModelFacts
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers

GREEDY = Sampling(temperature=0)
NOBODY = "https://example.com/"
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
        site: Path, width: int = 1280, dark: bool = False, script: str = "", handler: type = Quiet
    ) -> Page:
        handle = partial(handler, directory=site.parent.parent)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handle)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": 860}, color_scheme=scheme)
        page.set_default_timeout(15_000)
        page.on("request", lambda request: urls.append(request.url.removeprefix("blob:")))
        page.add_init_script(script)
        pages.append(page)
        page.goto(f"http://127.0.0.1:{server.server_port}/{site.parent.name}/{site.name}/")
        return page

    yield open_it
    for page, server in zip(pages, servers):
        page.close()
        server.shutdown()
        server.server_close()
    hosts = tuple(f"http://127.0.0.1:{server.server_port}/" for server in servers)
    assert urls and not [url for url in urls if not url.startswith(hosts)]


def at(page: Page, name: str) -> Locator:
    return page.locator(f"#{name}")


def wait_for_the_model(page: Page) -> None:
    expect(page.locator("#device:not(:empty), #error:not(:empty)")).to_be_visible(timeout=15_000)
    assert not at(page, "error").text_content()


def set_greedy(page: Page, max_tokens: int) -> None:
    wait_for_the_model(page)
    at(page, "temperature").fill("0")
    at(page, "max_tokens").fill(str(max_tokens))


def say(page: Page, text: str) -> str:
    """The reply to a message."""
    at(page, "box").fill(text)
    at(page, "box").press("Enter")
    wait_for_the_end(page)
    return page.locator(".assistant").last.text_content()


def wait_for_the_end(page: Page) -> None:
    expect(at(page, "status")).to_contain_text(re.compile("complete|max tokens|full|by you"))


def refusal(page: Page, text: str) -> str:
    at(page, "box").fill(text)
    at(page, "go").click()
    expect(at(page, "error")).to_be_visible()
    expect(at(page, "go")).to_be_enabled()
    return at(page, "error").text_content()


def our_reply(model: OnnxModel, messages: list[dict[str, str]], max_tokens: int) -> str:
    return "".join(piece.text for piece in chat(model, messages, GREEDY, max_tokens))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_replies_are_our_own_greedy_ones(site: Path, open_page: Open, model: OnnxModel) -> None:
    """Two turns; text that looks like a special token; emoji; white space; another script."""
    page = open_page(site)
    set_greedy(page, 24)
    messages = [user("My name is <|end|><|assistant|>  Ada 🦜\n\n¿qué? 你好 <b>x</b>")]
    for text in (messages[0]["content"], "What is my name?"):
        reply = say(page, text)
        assert reply == our_reply(model, messages, 24)
        messages += [{"role": "assistant", "content": reply}, user("What is my name?")]
    assert page.locator(".user").first.text_content() == messages[0]["content"]

    at(page, "retry").click()
    wait_for_the_end(page)
    assert page.locator(".assistant").last.text_content() == reply
    assert page.locator(".message").count() == 4

    at(page, "clear").click()
    assert page.locator(".message").count() == 0
    page.get_by_text("My name is Ada.").click()  # an example
    wait_for_the_end(page)
    assert page.locator(".assistant").text_content() == our_reply(
        model, [user("My name is Ada.")], 24
    )
    shown = at(page, "device").text_content()
    assert "106,816 parameters" in shown and "WebAssembly (1 thread) · model.onnx" in shown


def test_a_conversation_outgrows_the_context(site: Path, open_page: Open, model: OnnxModel) -> None:
    page = open_page(site)
    set_greedy(page, 30)
    messages = []
    while "no longer fit" not in (at(page, "status").text_content() or ""):
        messages.append(user("Tell me a story about a cat. " * 4))
        reply = say(page, messages[-1]["content"])
        assert reply == our_reply(model, messages, 30)
        messages.append({"role": "assistant", "content": reply})
        assert len(messages) < 40
    expect(at(page, "status")).to_contain_text(re.compile(r"the oldest \d+ messages"))


def test_what_cannot_be_answered_is_refused_in_words(site: Path, open_page: Open) -> None:
    page = open_page(site)
    set_greedy(page, 8)
    huge = "word " * 20_000
    assert "too long: it has 100,000 characters" in refusal(page, huge)
    assert at(page, "box").input_value() == huge and page.locator(".message").count() == 0
    assert "too long: it needs" in refusal(page, "🦜" * 300)
    assert "type something" in refusal(page, " \n ")
    say(page, "Hello!")  # goes on
    expect(at(page, "error")).to_be_hidden()


def test_the_sliders_are_those_of_the_table(site: Path, open_page: Open) -> None:
    page = open_page(site)
    wait_for_the_model(page)
    assert page.locator("#settings input").count() == 1 + len(SITE_SETTINGS)  # and max tokens
    for setting in (setting for setting in SETTINGS if setting.name in SITE_SETTINGS):
        shown = at(page, setting.name)
        for name, value in zip(("min", "max", "step"), (*setting.slider, setting.step)):
            assert float(shown.get_attribute(name)) == value
        assert float(shown.input_value()) == setting.default
        expect(page.locator(f"label[for={setting.name}]")).to_contain_text(setting.label)
        expect(page.locator(f"label[for={setting.name}] small")).to_have_text(setting.info)


def test_settings_count_and_stop_stops(site: Path, open_page: Open, model: OnnxModel) -> None:
    page = open_page(site)
    set_greedy(page, 5)
    say(page, "Hello!")
    expect(at(page, "status")).to_contain_text(re.compile(r"^[1-5] tokens?"))
    at(page, "temperature").fill("2")
    at(page, "top_k").fill("1")  # of one token there is no choice
    at(page, "clear").click()
    assert say(page, "Hello!") == our_reply(model, [user("Hello!")], 5)

    at(page, "top_k").fill("0")
    at(page, "max_tokens").fill("255")
    n_tokens = 255
    for _ in range(12):  # a reply may end by itself before it is stopped, and hide the button
        at(page, "clear").click()
        at(page, "box").fill("Tell me a story about a cat.")
        at(page, "box").press("Enter")
        with suppress(PlaywrightTimeout):
            at(page, "stop").click(timeout=1500)
        wait_for_the_end(page)
        if "stopped by you" in at(page, "status").text_content():
            n_tokens = int(at(page, "status").text_content().split()[0])
            break
    assert n_tokens < 240
    expect(at(page, "go")).to_be_visible()


def test_a_base_model_continues_a_text(
    base_site: Path, base_model: OnnxModel, open_page: Open
) -> None:
    page = open_page(base_site)
    set_greedy(page, 12)
    begin = "Once upon a time <|end|>"
    expected = begin + "".join(p.text for p in complete(base_model, begin, GREEDY, 12))
    at(page, "box").fill(begin)
    at(page, "go").click()
    wait_for_the_end(page)
    expect(at(page, "box")).to_have_value(expected)
    at(page, "retry").click()
    wait_for_the_end(page)
    expect(at(page, "box")).to_have_value(expected)
    at(page, "box").fill("word " * 20_000)
    at(page, "box").press("Shift+Enter")
    wait_for_the_end(page)
    expect(at(page, "status")).to_contain_text("the beginning of the text no longer fits")
    page.screenshot(path=SCREENSHOTS / "web_text.png")
    at(page, "clear").click()
    expect(at(page, "box")).to_have_value("")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("site.json", "site.json is missing from this site"),
        ("models/tiny/onnx/model.onnx", "models/tiny/onnx/model.onnx is missing from this site"),
        ("vendor/transformers.min.js", "a file of vendor/ is missing"),
    ],
)
def test_a_missing_file_is_told(
    site: Path, open_page: Open, tmp_path: Path, name: str, said: str
) -> None:
    broken = shutil.copytree(site, tmp_path / "some" / "site")
    (broken / name).unlink()
    page = open_page(broken)
    expect(at(page, "error")).to_contain_text(said)
    expect(at(page, "go")).to_be_disabled()


def test_the_quantised_file_is_taken_where_there_is_one(
    model_folder: Path, open_page: Open, model: OnnxModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "tiny")
    shutil.copyfile(folder / "onnx/model.onnx", folder / "onnx/model_quantized.onnx")
    write_facts(folder, read_facts(folder))
    page = open_page(build(folder, tmp_path / "some" / "site"))
    set_greedy(page, 8)
    assert say(page, "Hello!") == our_reply(model, [user("Hello!")], 8)
    expect(at(page, "device")).to_contain_text("model_quantized.onnx")


def test_threads_where_the_headers_allow_them_and_no_gpu_that_does_not_work(
    site: Path, open_page: Open
) -> None:
    """The page believes in a GPU, its worker finds none: it takes WebAssembly."""
    page = open_page(
        site, script="navigator.gpu.requestAdapter = async () => ({ info: {} })", handler=Isolated
    )
    set_greedy(page, 8)
    n_threads = min(page.evaluate("navigator.hardwareConcurrency"), 4)
    expect(at(page, "device")).to_contain_text(f"WebAssembly ({n_threads} thread")
    say(page, "Hello!")


def test_other_hosts_are_forbidden_to_the_page_and_its_worker(site: Path, open_page: Open) -> None:
    page = open_page(site)
    set_greedy(page, 8)
    violation = """(url) => new Promise((resolve) => {
        addEventListener("securitypolicyviolation", (event) => resolve(event.blockedURI));
        fetch(url).catch(() => {});
    })"""
    assert page.evaluate(violation, NOBODY) == NOBODY
    assert page.workers[0].evaluate(violation, NOBODY) == NOBODY


def test_a_narrow_dark_screen(site: Path, open_page: Open) -> None:
    page = open_page(site, width=390, dark=True)
    wait_for_the_model(page)
    page.locator("summary").click()
    set_greedy(page, 20)
    page.locator("summary").click()
    say(page, "W" * 100)
    page.screenshot(path=SCREENSHOTS / "web_narrow.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("box", "go", "retry", "settings"):
        box = at(page, name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_the_folder_is_a_static_space_of_what_the_browser_needs(site: Path) -> None:
    facts = json.loads((site / "site.json").read_text(encoding="utf-8"))
    found = {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()}
    assert found == {*facts["files"], "site.json"}
    assert not {"models/tiny/model.safetensors", "models/tiny/gptcore.json"} & found
    card = (site / "README.md").read_text(encoding="utf-8")
    assert card.startswith('---\ntitle: "tiny"\nsdk: static\nlicense: other\n')


def test_a_site_is_replaced_but_nothing_else(
    model_folder: Path, site: Path, tmp_path: Path, refused: Refused
) -> None:
    out = shutil.copytree(site, tmp_path / "site")
    (out / "README.md").unlink()
    assert main(["web", str(model_folder), "--out", str(out)]) == 0
    assert (out / "README.md").is_file()
    (out / "diary.txt").write_text("mine")
    assert "contains files of yours (diary.txt)" in refused(main, "web", model_folder, "--out", out)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "site.json").write_text("[]")
    assert "is not a site" in refused(main, "web", model_folder, "--out", mine)
    assert (mine / "site.json").read_text() == "[]" and (out / "diary.txt").is_file()


def test_models_that_browsers_cannot_run_are_refused(
    model_folder: Path, tmp_path: Path, refused: Refused
) -> None:
    out, translator = tmp_path / "site", tmp_path / "translator"
    translator.mkdir()
    write_facts(translator, ModelFacts("x", False, parameters=1, config=PRESETS["translator"]))
    assert "translation model" in refused(main, "web", translator, "--out", out)
    other = shutil.copytree(model_folder, tmp_path / "other")
    facts = json.loads((other / "gptcore.json").read_text())
    del facts["sha256"]["tokenizer.json"]
    (other / "gptcore.json").write_text(json.dumps(facts))
    assert "has no tokenizer.json" in refused(main, "web", other, "--out", out)
    assert not out.exists()


def test_npm_is_needed_once_and_its_failure_is_told(
    model_folder: Path,
    site: Path,
    tmp_path: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, tools = tmp_path / "site", tmp_path / "tools"
    monkeypatch.setenv("PATH", str(tools))
    assert main(["web", str(model_folder), "--out", str(out)]) == 0  # from the cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "npm is not installed" in refused(main, "web", model_folder, "--out", tmp_path / "b")
    tools.mkdir()
    npm = tools / "npm"
    npm.write_text("#!/bin/sh\necho no way >&2\nexit 1\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    said = refused(main, "web", model_folder, "--out", tmp_path / "b")
    assert "npm could not fetch @huggingface/transformers" in said and "no way" in said
    assert not list((tmp_path / "cache").rglob("*.js")) and not (tmp_path / "b").exists()
