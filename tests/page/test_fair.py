"""Who asks for many replies at once, on the page or by the API, leaves a slot to others."""

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from threading import Event
from uuid import uuid4

import pytest
from api_server import with_slots
from conftest import SECONDS, until

from gptcore.api.access import REPLIES, Access
from gptcore.model import OnnxModel
from gptcore.page.translate import PLACES
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import Translation, translate


@pytest.fixture
def model(slow_model: OnnxModel) -> OnnxModel:
    """A model whose replies never end by themselves, with few slots."""
    return with_slots(slow_model, 3)


class Visitor:
    """Somebody with an address, as a proxy tells it, and connections that are open."""

    def __init__(self, url: str, address: str, open_for: ExitStack):
        self.host, self.address, self.open_for = url.split("/")[2], address, open_for

    def send(self, method: str, path: str, **body: object) -> HTTPConnection:
        connection = HTTPConnection(self.host, timeout=SECONDS)
        self.open_for.enter_context(closing(connection))
        headers = {"X-Forwarded-For": self.address, "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        return connection

    def api(self, n_tokens: int) -> HTTPConnection:
        messages = [{"role": "user", "content": "Hi"}]
        asked = {"messages": messages, "max_tokens": n_tokens, "temperature": 0, "stream": True}
        return self.send("POST", "/v1/chat/completions", **asked)

    def page(self, n_tokens: int) -> HTTPConnection:
        values = ["Hi", None, "", 0, n_tokens, 50, 1, 0, 1, -1]
        begun = self.send("POST", "/gradio_api/call/chat", data=values).getresponse()
        return self.send("GET", f"/gradio_api/call/chat/{json.load(begun)['event_id']}")

    def translate(self, text: str) -> HTTPConnection:
        begun = self.send("POST", "/gradio_api/call/translate", data=[text, 1]).getresponse()
        return self.send("GET", f"/gradio_api/call/translate/{json.load(begun)['event_id']}")

    def translation(self, text: str) -> HTTPConnection:
        """What the view asks."""
        events = json.load(self.send("GET", "/view/facts.json").getresponse())["events"]
        session = str(uuid4())
        asked = {"data": [text, 1], "fn_index": events["translation"], "session_hash": session}
        self.send("POST", "/gradio_api/queue/join", **asked).getresponse().read()
        return self.send("GET", f"/gradio_api/queue/data?session_hash={session}")


@pytest.mark.slow  # it waits
@pytest.mark.parametrize("kind", ["translate", "translation"])
def test_one_visitor_leaves_a_place_for_the_translations_of_the_next(
    model: OnnxModel,
    tiny_translator: OnnxTranslator,
    serve: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    begun, is_over = [], Event()

    def held(translator: OnnxTranslator, text: str, beams: int) -> Translation:
        if text == "跑":
            begun.append(text)
            assert is_over.wait(SECONDS)
        return translate(translator, text, beams)

    monkeypatch.setattr("gptcore.page.translate.translate", held)
    url = serve(model, tiny_translator, access=Access(behind_proxy=True))
    with ExitStack() as open_for:
        open_for.callback(is_over.set)
        many, single = (Visitor(url, f"10.0.0.{i}", open_for) for i in (1, 2))
        waiting = [getattr(many, kind)("跑") for _ in range(REPLIES)]
        until(lambda: len(begun) >= PLACES - 1)
        told = getattr(single, kind)("猫").getresponse().read().decode()
        assert "event: complete" in told or '"success":true' in told
        assert len(begun) == PLACES - 1
        is_over.set()
        assert all(connection.getresponse().read() for connection in waiting)
        assert len(begun) == REPLIES, "the others waited"


@pytest.mark.slow  # it waits
@pytest.mark.parametrize(("one", "other"), [("api", "page"), ("page", "api")])
def test_one_visitor_leaves_a_slot_to_the_next(
    model: OnnxModel, serve: Callable[..., str], one: str, other: str
) -> None:
    url = serve(model, access=Access(behind_proxy=True))
    with ExitStack() as open_for:
        many, single = (Visitor(url, f"10.0.0.{i}", open_for) for i in (1, 2))
        for _ in range(REPLIES):
            getattr(many, one)(2000)
        until(lambda: model.engine.n_running == REPLIES)
        told = getattr(single, other)(3).getresponse().read().decode()
        assert ("[DONE]" if other == "api" else "event: complete") in told
        assert model.engine.n_running == REPLIES  # the others go on, or wait
