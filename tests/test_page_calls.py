"""What arrives for an event of the page, and is refused in words before Gradio fails on it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
import pytest

import gptcore.page.guard.crowd
from gptcore.api.door import Refused
from gptcore.bundle import default_model
from gptcore.model import load_model
from gptcore.page.build import build_page
from gptcore.page.guard.arguments import check_call

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
JOIN, RUN = "/gradio_api/queue/join", "/gradio_api/run/predict"
SETTINGS = [0.7, 20, 50, 1, 0, 1, -1]
TURNS = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
SEND = ["Hello", TURNS, "", *SETTINGS]
EDITED = {"index": 0, "value": "Ho", "previous_value": "Hi"}


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build_page(load_model(default_model(), threads=1))


def call(page: gr.Blocks, name: str, data: object, told: object = None) -> None:
    index = next(i for i, event in page.fns.items() if event.api_name == name)
    check_call(page, JOIN, {"fn_index": index, "data": data, "event_data": told})


GOOD = {
    "send": (SEND, None),
    "retry": (SEND[1:], {"index": 0, "value": "Hi"}),
    "edit": (SEND[1:], EDITED),
    "example": (SEND[1:], {"index": 1, "value": {"text": "Hello!"}}),
    "undo": ([TURNS], {"index": 0, "value": "Hi"}),
    "clear": ([], None),
    "stop": ([], None),
    "look": (["Hello", "attention weights", 1, 1], None),
    "draw": ([None, "embeddings", 1, 2], None),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_the_page_sends_is_let_in(page: gr.Blocks, name: str) -> None:
    call(page, name, *GOOD[name])


def changed(at: int, value: object) -> list[Any]:
    return [*SEND[:at], value, *SEND[at + 1 :]]


BAD: list[tuple[str, object, object, str]] = [
    ("send", [], None, "send takes 10 values in data, not 0"),
    ("send", "Hello", None, "send takes 10 values in data, not none"),
    ("send", changed(0, 5), None, "textbox must be text"),
    ("send", changed(0, None), None, "textbox must be text"),
    ("send", changed(1, 5), None, "history must be a list"),
    ("send", changed(1, [5]), None, "history must be a list"),
    ("send", changed(1, [{"role": "user", "content": [{"type": 1, "text": "Hi"}]}]), None,
     "history holds what is no message of this page"),
    ("send", changed(2, None), None, "System prompt must be text"),
    ("send", changed(3, None), None, "Temperature is empty: give a number"),
    ("send", changed(3, float("nan")), None, "Temperature must be a number, not nan"),
    ("send", changed(3, True), None, "Temperature must be a number, not True"),
    ("send", changed(3, 7), None, "Temperature 7 is out of range: choose 0 to 2"),
    ("send", changed(4, "x" * 900), None, "Max tokens must be a number, not x"),
    ("send", changed(9, None), None, "Seed is empty: give a number"),
    ("retry", SEND[1:], None, "event_data of retry has no 'index'"),
    ("retry", SEND[1:], {"index": 0}, "event_data of retry has no 'value'"),
    ("retry", SEND[1:], {"index": 1, "value": ""}, "the conversation has no message 1"),
    ("retry", SEND[1:], {"index": -1, "value": ""}, "the conversation has no message -1"),
    ("undo", [TURNS], {"index": [0, 1], "value": ""}, "the conversation has no message [0, 1]"),
    ("edit", SEND[1:], EDITED | {"value": None}, "event_data of edit must hold text"),
    ("edit", SEND[1:], {"index": 0, "value": ""}, "event_data of edit has no 'previous_value'"),
    ("example", SEND[1:], {"index": 0, "value": "x"}, "event_data of example_select must hold"),
    ("look", ["Hi", "weights", 1, 1], None, "'weights' is not one of its choices"),
    ("look", ["Hi", "embeddings", [], 1], None, "Layer must be a number, not []"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "told", "words"), BAD, ids=lambda v: str(v)[:40])
def test_what_no_page_sends_is_refused(
    page: gr.Blocks, name: str, data: object, told: object, words: str
) -> None:
    with pytest.raises(Refused, match=re.escape(words)) as refused:
        call(page, name, data, told)
    assert refused.value.status == 400 and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (JOIN, [], 400, "the body must be a JSON object"),
        (JOIN, {"data": []}, 400, "this page has no event None: reload it"),
        (JOIN, {"data": [], "fn_index": 99}, 400, "this page has no event 99"),
        (RUN, {"data": [], "fn_index": "1"}, 400, "this page has no event '1'"),
        ("/gradio_api/call/nothing", {"data": []}, 404, "this page has no endpoint 'nothing'"),
        ("/gradio_api/call/send", {"data": []}, 404, "this page has no endpoint 'send'"),
        ("/gradio_api/call/chat", {"data": ["Hi"]}, 400, "chat takes 10 values in data, not 1"),
        ("/gradio_api/call/v2/chat", {}, 400, "chat: message is missing"),
        ("/gradio_api/call/v2/chat", {"message": "Hi", "temp": 1}, 400, "chat has no 'temp'"),
    ],
)  # fmt: skip
def test_a_call_that_names_no_event_or_not_its_values_is_refused(
    page: gr.Blocks, path: str, body: object, status: int, words: str
) -> None:
    with pytest.raises(Refused, match=re.escape(words)) as refused:
        check_call(page, path, body)
    assert refused.value.status == status


@pytest.mark.slow
def test_nonsense_gets_answers_in_words_and_never_a_traceback() -> None:
    command = [sys.executable, "benchmarks/crowds/fuzz.py", "--requests", "1000"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 failures" in told.stdout and "500:" not in told.stdout


def test_a_page_that_is_busy_says_so_and_keeps_what_was_typed(
    browser: "Browser", serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("chromium")
    tab = browser.new_page()
    tab.goto(serve(load_model(default_model(), threads=1)))
    box = tab.get_by_placeholder("Type a message")
    box.fill("Hello!")
    monkeypatch.setattr(gptcore.page.guard.crowd, "EVENTS", 0)
    box.press("Enter")
    tab.get_by_text("0 of your requests wait or run: let one end first").wait_for()
    assert box.input_value() == "Hello!"
    monkeypatch.undo()
    box.press("Enter")
    tab.get_by_text("the reply is complete").wait_for()
    tab.close()
