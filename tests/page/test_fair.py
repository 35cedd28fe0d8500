"""Who asks for many replies at once, on the page or by the API, leaves a slot to others."""

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest
from api_server import with_slots
from conftest import SECONDS, until

from gptcore.api.access import REPLIES, Access
from gptcore.model import OnnxModel


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
