"""Shared by the tests: tests/runtime needs no torch, what the others need is in trained.py."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gptcore.model import OnnxModel
from gptcore.models import Models
from gptcore.system.files import files_in
from gptcore.translation.onnx import OnnxTranslator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from gptcore.api.access import Access

Refused = Callable[..., str]
Visit = Callable[..., "Page"]
# Windows has no pseudo-terminals of the kind that Python opens.
collect_ignore = ["runtime/test_pseudo_terminal.py"] if sys.platform == "win32" else []
ROOT = Path(__file__).parent.parent
NANO = ROOT / "models" / "nano"
# Written by the real commands: a run of six steps on 60 dialogues, its export with `inspect`, and
# a translator of 60 pairs; run/config.json and translator/gptcore.json have the settings.
TINY = ROOT / "tests" / "fixtures" / "tiny"
SCREENSHOTS = ROOT / "screenshots"  # for people to look at
# The longest wait of a test. What takes a second may take half a minute on cores that others use.
SECONDS = 60


def pytest_configure(config: pytest.Config) -> None:
    # A background job starts with Ctrl-C ignored, one of nohup's with SIGHUP, and so do its
    # processes; a terminal's do not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    hands_out = config.getoption("numprocesses", None)  # to processes that do the tests
    if find_spec("torch") and not hands_out:
        config.pluginmanager.import_plugin("trained")
        config.pluginmanager.import_plugin("sites")
        config.pluginmanager.import_plugin("foreign")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was imported for the tests stays: whoever looks for garbage leaves out its objects."""
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


def until(is_so: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for what must come, and fail where it does not come."""
    deadline = time.monotonic() + seconds
    while not is_so():  # once more would ask for what changes when it is asked for
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder and of its folders, by their names in it."""
    return {name: path.read_bytes() for name, path in files_in(folder).items()}


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command that must be refused in one line; the line."""

    def run(main: Callable[[list[str]], int], *words: object) -> str:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr().err
        assert code == 2 and said.startswith("error: ") and said.count("\n") == 1, said
        return said.strip()

    return run


def started(script: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process of Python in a folder, which may import this checkout; its output is in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., str]]:
    """Serves the page of a model, and of a translator and Train if given; the address."""
    from gptcore.gradio.build import launch_page
    from gptcore.page.train.workbench import Workbench

    pages = []

    def start(
        model: OnnxModel | Models,
        translator: OnnxTranslator | None = None,
        bench: Workbench | None = None,
        access: "Access | None" = None,
    ) -> str:
        models = model if isinstance(model, Models) else Models(model)
        pages.append(launch_page(models, translator, bench, access, prevent_thread_lock=True))
        return pages[-1].local_url

    yield start
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from in_browser import CHROMIUM_ARGUMENTS
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium, "this test needs a browser: apt-get install chromium"
    SCREENSHOTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def nano() -> OnnxModel:
    from gptcore.model import load_model

    return load_model(NANO, threads=1, device="cpu", variant="fp32")


@pytest.fixture(scope="module")
def url(serve: Callable[..., str]) -> str:
    """The address of the page of the model that ships."""
    from gptcore.bundle import default_model
    from gptcore.model import load_model

    return serve(load_model(default_model(), threads=1))


@pytest.fixture
def visit(browser: "Browser") -> "Iterator[Visit]":
    """Opens pages, each in a context of its own; no console may tell of an error."""
    from in_browser import open_page

    opened: list[Page] = []

    def start(*page: object, **more: object) -> "Page":
        opened.append(open_page(browser, *page, **more))
        return opened[-1]

    yield start
    for page in opened:
        assert page.errors == []
        page.context.close()


@pytest.fixture
def page(visit: "Visit", url: str) -> "Page":
    """The page at the address `url`."""
    return visit(url)
