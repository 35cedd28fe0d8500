"""Bytes that no browser sends, to the page and to the API alone."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from api_server import SECONDS, is_closed, served
from conftest import TINY, until

import gptcore.api.protocol
from gptcore.api.access import Access
from gptcore.api.protocol import MOST_SMALL
from gptcore.model import OnnxModel, load_model

CHUNKED = b"%s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=["the page", "the API alone"])
def port(request: pytest.FixtureRequest, serve: Callable[..., str]) -> Iterator[int]:
    model: OnnxModel = load_model(TINY / "model", threads=1, variant="fp32")
    if request.param == "the page":
        yield int(serve(model).rstrip("/").rpartition(":")[2])
    else:
        with served(model, Access()) as url:
            yield int(url.rpartition(":")[2])


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


@pytest.mark.parametrize(("n", "answer"), [(MOST_SMALL, b"not valid JSON"), (10_000, b"Invalid")])
def test_a_body_in_very_many_small_chunks_is_refused(port: int, n: int, answer: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(CHUNKED % b"POST /v1/completions" + b"1\r\n[\r\n" * n + b"0\r\n\r\n")
        told = connection.recv(1000)
        while answer not in told and (more := connection.recv(1000)):
            told += more
    assert told.startswith(b"HTTP/1.1 400") and answer in told


def test_nonsense_after_an_answer_closes_the_connection_and_leaves_nothing_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(port) as connection:
        connection.sendall(CHUNKED % b"GET /health")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"nonsense\r\n")
        while connection.recv(1000):
            pass
    assert not caplog.records


def test_one_address_has_so_many_connections_and_no_more(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gptcore.api.protocol, "MOST_OPEN", 5)
    with ExitStack() as stack:
        many = [stack.enter_context(connected(port)) for _ in range(9)]
        until(lambda: sum(map(is_closed, many)) >= 4)
        many[0].setblocking(True)
        many[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert many[0].recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_connections_on_which_nothing_is_asked_are_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gptcore.api.protocol, "HALF_OPEN", 3)
    with ExitStack() as stack:
        first = [stack.enter_context(connected(port)) for _ in range(3)]
        for connection in first:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        time.sleep(2.5)  # a sweep has seen them
        later = [stack.enter_context(connected(port)) for _ in range(6)]
        silent = [*first, *later]
        until(lambda: sum(map(is_closed, silent)) == 6)
        assert all(map(is_closed, first)), "the newest are left, among which a visitor may be"
        monkeypatch.setattr(gptcore.api.protocol, "HEADER_SECONDS", 1.0)
        until(lambda: all(map(is_closed, silent)))
    with connected(port) as connection:
        connection.sendall(CHUNKED % b"GET /health")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_proxy_has_as_many_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens some ahead."""
    monkeypatch.setattr(gptcore.api.protocol, "MOST_OPEN", 5)
    monkeypatch.setattr(gptcore.api.protocol, "HALF_OPEN", 5)
    model = load_model(TINY / "model", threads=1, variant="fp32")
    with served(model, Access(behind_proxy=True)) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        many = [stack.enter_context(connected(port)) for _ in range(9)]
        time.sleep(2.5)  # a sweep has seen them
        for connection in many:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
