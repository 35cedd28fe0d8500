"""What arrives for an event of the page, and is refused in words before Gradio fails on it."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr
import pytest
from conftest import ROOT, TINY

import gptcore.gradio.guard.visitors
from gptcore.api.access import Access, Refused
from gptcore.api.bodies import read_chat
from gptcore.bundle import default_model, read_facts
from gptcore.checks import UserError
from gptcore.engine.sampling import Sampling
from gptcore.gradio.build import build_page
from gptcore.gradio.guard.arguments import check_call
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.facts import EXAMPLES, examples_of, settings
from gptcore.page.inspect import inspect_endpoint
from gptcore.page.reply import read
from gptcore.page.streaming import CROWD_SECONDS, LONGEST_SECONDS, YIELD_SECONDS, pause
from gptcore.page.translate import crossing_endpoint
from gptcore.system.files import shown
from gptcore.translation.onnx import OnnxTranslator

if TYPE_CHECKING:
    from playwright.sync_api import Browser

JOIN, RUN = "/gradio_api/queue/join", "/gradio_api/run/predict"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return load_model(default_model(), threads=1)


@pytest.fixture(scope="module")
def page(model: OnnxModel) -> gr.Blocks:
    return build_page(Models(model), None, Access())


@pytest.fixture(scope="module")
def text_page(model: OnnxModel) -> gr.Blocks:
    """The page of a model that was not trained on conversations."""
    base = copy(model)
    base.bundle = replace(model.bundle, facts=replace(model.bundle.facts, chat=False))
    return build_page(Models(base), None, Access())


def test_a_model_of_somebodys_own_texts_offers_questions_of_its_own_or_none(
    model: OnnxModel,
) -> None:
    """A German chat's was offered "Tell me a story about a cat.", which it cannot know."""
    shipped = model.bundle.facts
    assert examples_of(shipped) == EXAMPLES == examples_of(replace(shipped, training=None))
    data = replace(shipped.training.data, datasets={})
    own = replace(shipped, training=replace(shipped.training, data=data))
    assert examples_of(own) == ()
    assert examples_of(replace(own, examples=("Wo ist der Schlüssel?",)))[0].startswith("Wo")
    assert len(examples_of(read_facts(ROOT / "models" / "nano"))) == 4


def call(page: gr.Blocks, name: str, data: object) -> None:
    index = next(i for i, event in page.fns.items() if event.api_name == name)
    check_call(page, JOIN, {"fn_index": index, "data": data})


def test_no_statistics_of_events_are_made(page: gr.Blocks) -> None:
    """Gradio would make a table of the last events after each one."""
    queue = page._queue
    queue.events_recorded += 1
    record = {"status": "success", "process_time": 1.0, "function": "reply"}
    assert queue.compute_analytics_summary([record]) == {"functions": {}}


def test_updates_are_fewer_in_a_crowd_and_not_for_one_user() -> None:
    assert pause(1) == pause(2) == YIELD_SECONDS
    assert pause(8) / 8 == pause(16) / 16 == CROWD_SECONDS
    assert pause(1000) == LONGEST_SECONDS


def test_what_the_pages_send_is_let_in(page: gr.Blocks, text_page: gr.Blocks) -> None:
    call(page, "reply", [MESSAGES, {"temperature": 0.5}, [], None])
    call(page, "inspect", ["Hello", 0, None, False])
    call(text_page, "reply", ["Once", {}, [], None])


GOOD = {"prompt": MESSAGES, "settings": {}, "begun": []}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": 5}, "history must be a list"),
        ({"prompt": [5]}, "history must be a list"),
        ({"prompt": [{"role": "user", "content": [{"type": 1, "text": 2}]}]}, "must be text"),
        ({"prompt": [{"role": "king", "content": "Hi"}]}, "unknown role 'king'"),
        ({"prompt": []}, "there is no message"),
        ({"settings": 5}, "settings must be an object"),
        ({"settings": {"temperature": None}}, "temperature"),
        ({"settings": {"max_tokens": 0}}, "max_tokens=0 is out of range"),
        ({"settings": {"stop": "x"}}, "stop must be a list of texts"),
        ({"begun": [-1]}, "not an ordinary token"),
        ({"begun": [10**6]}, "not an ordinary token"),
        ({"begun": [True]}, "not an ordinary token"),
        ({"begun": {}}, "begun must be a list of token ids, or a text"),
        ({"begun": [5] * 600}, "the reply that is begun has 600 tokens"),
    ],
    ids=str,
)
def test_what_the_view_never_asks_is_refused(model: OnnxModel, change: dict, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        read(model, **GOOD | change)


def test_a_role_token_which_would_begin_a_message_begins_no_reply(model: OnnxModel) -> None:
    with pytest.raises(UserError, match="not an ordinary token"):
        read(model, **GOOD | {"begun": [model.tokenizer.special["<|user|>"]]})


def test_a_reply_whose_length_nobody_chose_fits_a_short_context() -> None:
    first = load_model(TINY / "model", threads=1, variant="fp32")
    request, _ = read(first, [{"role": "user", "content": "Hi"}], {}, [])
    assert request.max_tokens <= first.config.block_size // 2
    request, _ = read(first, MESSAGES, {"max_tokens": 2000}, [])  # chosen for another model
    assert request.max_tokens == first.config.block_size


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (5, "a text, messages, or ids"),
        (None, "a text, messages, or ids"),
        ([[5]], "a text, messages, or ids"),
        ([True], "a text, messages, or ids"),
        ([-1], "a text, messages, or ids"),
        ([10**9], "a text, messages, or ids"),
        ([5.0], "a text, messages, or ids"),
        ([], "the text is empty"),
        ([5] * 129, "the text has 129 tokens and the picture holds 128"),
        ("", "the text is empty"),
        ([{"role": "user", "content": 5}], "must be text"),
        ([{"role": "king", "content": "Hi"}], "unknown role 'king'"),
        ([{"role": "user", "content": "x" * 10**6}], "too long"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_looked_at_is_refused(model: OnnxModel, what: object, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        looked(model, what, 0)


@pytest.mark.parametrize(
    ("layer", "words"),
    [(8, "layer=8 is out of range: the model has 8"), (-1, "layer=-1 is out of range"),
     (None, "layer is empty"), (0.5, "not a whole number"), ("0", "not a whole number")],
)  # fmt: skip
def test_a_layer_that_is_not_there_is_refused(model: OnnxModel, layer: object, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        looked(model, "Hi", layer)


def looked(model: OnnxModel, what: object, layer: object) -> str:
    return asyncio.run(anext(inspect_endpoint(Models(model))(what, layer, None, False)))


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (5, [1, 2], "a list of 2 to 32 ids"),
        ([1], [1, 2], "a list of 2 to 32 ids"),
        ([1] * 33, [1, 2], "a list of 2 to 32 ids"),
        ([1, 2], [1] * 34, "a list of 2 to 33 ids"),
        ([1, 2], [1, 10**6], "this model does not have"),
        ([1, True], [1, 2], "this model does not have"),
    ],
)
def test_what_cannot_be_crossed_is_refused(
    translator: OnnxTranslator, source: object, target: object, words: str
) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        asyncio.run(anext(crossing_endpoint(translator.bundle)(source, target)))


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (JOIN, [], 400, "the body must be a JSON object"),
        (JOIN, {"data": []}, 400, "this page has no event None: reload it"),
        (JOIN, {"data": [], "session_hash": ""}, 400, "session_hash must have 1 to 64 letters"),
        (JOIN, {"data": [], "session_hash": "a<gradio-sep>b"}, 400, "session_hash must have 1"),
        (JOIN, {"data": [], "fn_index": 99}, 400, "this page has no event 99"),
        (RUN, {"data": [], "fn_index": "1"}, 400, "this page has no event '1'"),
        ("/gradio_api/call/nothing", {"data": []}, 404, "this page has no endpoint 'nothing'"),
        ("/gradio_api/call/reply", {"data": []}, 404, "this page has no endpoint 'reply'"),
        ("/gradio_api/call/chat", {"data": ["Hi"]}, 400, "chat takes 10 values in data, not 1"),
        ("/gradio_api/call/chat", {"data": "Hi"}, 400, "chat takes 10 values in data, not none"),
        ("/gradio_api/call/v2/chat", {}, 400, "chat: message is missing"),
        ("/gradio_api/call/v2/chat", {"message": "Hi", "temp": 1}, 400, "chat has no 'temp'"),
    ],
)  # fmt: skip
def test_a_call_that_names_no_event_or_not_its_values_is_refused(
    page: gr.Blocks, path: str, body: object, status: int, words: str
) -> None:
    with pytest.raises(Refused, match=re.escape(words)) as refused:
        check_call(page, path, body)
    assert refused.value.status == status and len(str(refused.value)) < 200


@pytest.mark.slow
def test_nonsense_gets_answers_in_words_and_never_a_traceback() -> None:
    command = [sys.executable, "benchmarks/crowds/fuzz.py", "--requests", "1000"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 failures" in told.stdout and "500:" not in told.stdout


def test_a_page_that_is_busy_says_so_and_keeps_what_was_typed(
    browser: "Browser", serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = browser.new_page()
    tab.goto(serve(load_model(default_model(), threads=1)))
    box = tab.locator(".composer .box")
    box.fill("Hello!")
    monkeypatch.setattr(gptcore.gradio.guard.visitors, "EVENTS", 0)
    box.press("Enter")
    tab.get_by_text("0 of your requests wait or run: let one end first").wait_for()
    assert box.input_value() == "Hello!"
    monkeypatch.undo()
    box.press("Enter")
    tab.locator(".message.assistant .tools").wait_for()
    tab.close()


def test_the_view_is_told_a_folder_as_a_command_names_it_and_not_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(Path("models/mine")) == shown(tmp_path / "models/mine") == "models/mine"
    assert shown(tmp_path.parent / "mine") == "mine"


def test_what_nobody_has_set_is_as_the_models_makers_recommend(model: OnnxModel) -> None:
    """Of Qwen's generation_config.json; what the model's own does not say is ours."""
    facts = replace(model.bundle.facts, sampling={"top_k": 20, "repetition_penalty": 1.1})
    other = copy(model)
    other.bundle = replace(model.bundle, facts=facts)
    wanted = Sampling(top_k=20, repetition_penalty=1.1)
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert read_chat(body, other).requests[0].sampling == wanted
    assert read_chat(body | {"top_k": 3}, other).requests[0].sampling == replace(wanted, top_k=3)
    assert read_chat(body, model).requests[0].sampling == Sampling()
    request, _ = read(other, body["messages"], {"seed": 5}, "")
    assert request.sampling == replace(wanted, seed=5)
    shown = {setting["name"]: setting["default"] for setting in settings(facts)}
    assert shown == asdict(wanted) | {"max_tokens": 256}
