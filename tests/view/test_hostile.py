"""Hostile pages and scripts against the chat page, in a real browser."""

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import TINY
from playwright.sync_api import Browser, Page, expect

from gptcore.model import load_model


@pytest.fixture(scope="module")
def url(serve: Callable[..., str]) -> str:
    return serve(load_model(TINY / "model", threads=1, variant="fp32"))


@pytest.fixture(scope="module")
def misled(browser: Browser) -> Iterator[Browser]:
    """A browser for which the name evil.example leads to this machine."""
    other = browser.browser_type.launch(
        executable_path=shutil.which("chromium"),
        args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
    )
    yield other
    other.close()


@pytest.fixture
def hostile(misled: Browser, tmp_path: Path) -> Iterator[Page]:
    """An empty page of evil.example."""
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page = misled.new_page()
        page.goto(f"http://evil.example:{server.server_port}/")
        yield page
        page.close()
        server.shutdown()


def test_a_script_that_somebody_inserts_does_not_run(browser: Browser, url: str) -> None:
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(url)
    expect(page.get_by_placeholder("Type a message")).to_be_visible()
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.ran = 'script'";
        document.body.append(script);
        const box = document.createElement("div");
        box.innerHTML = "<img src=x: onerror=\\"window.ran = 'handler'\\">";
        document.body.append(box);
    }""")
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
    assert sum("Content Security Policy" in text for text in refused) >= 2
    page.close()


def test_a_page_of_another_origin_can_neither_read_nor_show_this_one(
    hostile: Page, url: str
) -> None:
    read = "url => fetch(url).then(answer => answer.text(), error => 'refused: ' + error)"
    assert hostile.evaluate(read, f"{url}config").startswith("refused: ")
    hostile.evaluate(
        """url => {
        const frame = document.createElement("iframe");
        frame.src = url;
        document.body.append(frame);
    }""",
        url,
    )
    hostile.wait_for_timeout(2000)
    assert not any(frame.url == url and frame.title() for frame in hostile.frames[1:])


def test_a_blind_upload_of_another_origin_is_refused(hostile: Page, url: str) -> None:
    with hostile.expect_response(f"{url}gradio_api/upload") as answer:
        hostile.evaluate(
            """url => {
            const form = new FormData();
            form.append("files", new Blob([new Uint8Array(100000)]), "x.bin");
            return fetch(url + "gradio_api/upload", {method: "POST", mode: "no-cors", body: form});
        }""",
            url,
        )
    assert answer.value.status == 403


def test_a_name_of_another_site_that_leads_here_reads_nothing(misled: Browser, url: str) -> None:
    """The name led to the site's own server first, and leads to this machine by now."""
    page = misled.new_page()
    answer = page.goto(url.replace("127.0.0.1", "evil.example"))
    assert answer.status == 421 and "is not called" in page.content()
    page.close()
