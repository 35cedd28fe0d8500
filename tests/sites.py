"""Sites of `python -m export web` for the tests: built, and served from a subfolder.

Every request of every test must stay on its host.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest
from conftest import SECONDS
from in_browser import new_tab, set_number
from playwright.sync_api import Browser, Page, expect
from served import Quiet

from export.__main__ import main
from gptcore.bundle import read_facts, write_facts
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel

GREEDY = Sampling(temperature=0)
NO_GPU = "delete Navigator.prototype.gpu"
Open = Callable[..., Page]


def holding(arrives: Event) -> type[Quiet]:
    """A handler whose graph arrives once the event is set."""

    class Holding(Quiet):
        def do_GET(self) -> None:
            if urlsplit(self.path).path.endswith("model.onnx"):  # its version follows
                assert arrives.wait(10 * SECONDS)
            super().do_GET()

    return Holding


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


def whole_numbers(model_folder: Path, out: Path) -> Path:
    """A copy of a model folder that has the 8-bit file alone, which WebGPU cannot run."""
    folder = shutil.copytree(model_folder, out)
    (folder / "onnx/model.onnx").rename(folder / "onnx/model_quantized.onnx")
    write_facts(folder, read_facts(folder))
    return folder


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
    expect(page.locator(".foot .notice")).to_be_hidden()
    return page.locator(".device").inner_text()


def set_greedy(page: Page, max_tokens: int) -> None:
    download(page)
    set_number(page, "Temperature", "0")
    set_number(page, "Max tokens", str(max_tokens))


def starved(n_workers: int) -> str:
    """A script under which the first workers of a page get no memory for WebAssembly."""
    fault = 'WebAssembly.instantiate = () => { throw new RangeError("Out of memory"); };'
    return f"""
        self.nWorkers = 0;
        self.Blob = class extends Blob {{
            constructor(parts, options) {{
                const isWorker = /^import "http|startPage/.test(parts[0]) && (nWorkers += 1);
                super(isWorker && nWorkers <= {n_workers} ? [{fault!r}, ...parts] : parts, options);
            }}
        }};
    """


def our_reply(model: OnnxModel, messages: list[dict[str, str]], max_tokens: int) -> str:
    return "".join(piece.text for piece in chat(model, messages, GREEDY, max_tokens))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def shown(text: str) -> str:
    """A reply as Markdown shows it, but for white space."""
    return "".join(text.split())


def check_hosts_forbidden(page: Page) -> None:
    """The policy stops a request to another host, of the page and of its worker."""
    nobody = "https://example.com/"
    violation = """(url) => new Promise((resolve) => {
        addEventListener("securitypolicyviolation", (event) => resolve(event.blockedURI));
        fetch(url).catch(() => {});
    })"""
    for place in (page, page.workers[0]):
        assert place.evaluate(violation, nobody) == nobody
