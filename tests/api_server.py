"""What the tests of the API share: a server on a free port, and its errors."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import requests
from conftest import SECONDS, until

from gptcore.api.access import Access
from gptcore.api.protocol import Config, Server
from gptcore.api.routes import Api
from gptcore.engine.onnx_session import open_slots
from gptcore.engine.scheduler import Engine
from gptcore.engine.slots import Slots
from gptcore.model import OnnxModel
from gptcore.models import Models

HELLO = [{"role": "user", "content": "Hello! Who are you?"}]
# The schema of a reply that does not end by itself.
ENDLESS = {"type": "array", "items": {"type": "boolean"}, "minItems": 10**6}


@contextmanager
def served(model: OnnxModel | Models, access: Access) -> Iterator[str]:
    """The address of the API on a free port."""
    api = Api(model if isinstance(model, Models) else Models(model), access)
    with running(api, behind_proxy=access.behind_proxy) as address:
        yield address


@contextmanager
def running(app: object, port: int = 0, behind_proxy: bool = False) -> Iterator[str]:
    """The address of an ASGI application, by default on a free port."""
    with socket.socket() as listening:
        # A named port may have connections of a server that has just ended.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        server = Server(Config(app, behind_proxy=behind_proxy))
        sockets = {"sockets": [listening]}
        thread = threading.Thread(target=server.run, kwargs=sockets, daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive())
        assert server.started
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()


def with_slots(model: OnnxModel, n: int) -> OnnxModel:
    """The same model with so many slots."""
    copy = OnnxModel(model.bundle, model.inference, 1, model.variant)
    copy.engine = Engine(open_slots(model.inference, model.config, n), model.tokenizer)
    return copy


def slow_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every step of the engine take 10 ms more; the list that says how many each wrote."""
    steps: list[int] = []
    step = Slots.step

    def slow(slots: Slots, ids: Sequence[int]) -> np.ndarray:
        steps.append(len(ids))
        time.sleep(0.01)
        return step(slots, ids)

    monkeypatch.setattr(Slots, "step", slow)
    return steps


def wait_until_idle(model: OnnxModel) -> None:
    until(lambda: not model.engine.n_running)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def error_of(response: requests.Response, status: int) -> str:
    assert response.status_code == status
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text and ".py" not in response.text
    return error["message"]


def events(response: requests.Response) -> list[Any]:
    """What a stream holds; its last line says that it is whole."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.content.decode().split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
