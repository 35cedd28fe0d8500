"""What the page's server refuses, asked over real connections as a stranger would."""

import asyncio
import base64
import hashlib
import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from threading import Event

import pytest
from conftest import NANO, SECONDS, TINY, until

import gptcore.gradio.guard.visitors
from benchmarks.crowds.servers import free_port, running
from gptcore.api.access import LONGEST_BODY, Refused
from gptcore.engine.generate import chat_request
from gptcore.engine.sampling import Sampling
from gptcore.gradio.guard.middleware import check_json, policy
from gptcore.gradio.guard.visitors import Visitors
from gptcore.model import OnnxModel, load_model
from gptcore.page.streaming import Progress, stream
from gptcore.system.network import is_loopback

Address = tuple[str, int]
JSON = {"Content-Type": "application/json"}
JSON_LINES = b"Content-Type: application/json\r\n"
JOIN = b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\n"
FILE = {"path": "/x", "url": "http://127.0.0.1:1/x", "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="module")
def address(serve: Callable[..., str]) -> Address:
    return host_and_port(serve(load_model(TINY / "model", threads=1, variant="fp32")))


def host_and_port(url: str) -> Address:
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/", url).groups()
    return host, int(port)


Ask = Callable[..., HTTPResponse]


@pytest.fixture
def asked(address: Address) -> Iterator[Ask]:
    with asking(address) as ask:
        yield ask


@contextmanager
def asking(address: Address) -> Iterator[Ask]:
    """A function that sends a request and returns the answer, whose body it has read."""
    with closing(HTTPConnection(*address, timeout=SECONDS)) as connection:

        def ask(method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
            sent = json.dumps(body) if isinstance(body, dict | list) else body
            connection.request(method, path, sent, JSON | headers)
            answer = connection.getresponse()
            answer.text = answer.read().decode()
            return answer

        yield ask


def data(message: object, history: object = None, system: object = "", n: int = 2000) -> dict:
    """The body of a call of /chat, with its settings."""
    return {"data": [message, history, system, 0, n, 50, 1, 0, 1, -1]}


def begin(ask: Ask, body: dict) -> HTTPResponse:
    return ask("POST", "/gradio_api/call/chat", body)


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", "/theme.css"])
def test_what_the_page_needs_is_served(asked: Ask, path: str) -> None:
    assert asked("GET", path).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/upload_progress?upload_id=1"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/gradio_api/file=http://127.0.0.1:1/x"),
        ("GET", "/gradio_api/file=/etc/hostname"),
        ("GET", "/gradio_api/proxy=http://127.0.0.1:1/x"),
        ("POST", "/gradio_api/run/chat"),
        ("POST", "/gradio_api/api/chat"),
        ("POST", "/gradio_api/stream/1"),
        ("GET", "/monitoring"),
        ("POST", "/login"),
        ("GET", "/docs"),
        ("GET", f"/static/{'a' * 300}"),
    ],
)
def test_what_the_page_does_not_need_is_refused(asked: Ask, method: str, path: str) -> None:
    answer = asked(method, path)
    assert answer.status == 403 and "not use that address: programs use /v1" in answer.text


def test_no_request_goes_past_the_queue(asked: Ask) -> None:
    config = json.loads(asked("GET", "/config").text)
    assert len(config["dependencies"]) > 1
    for event in config["dependencies"]:
        body = {"data": [], "fn_index": event["id"], "session_hash": "a"}
        values = [None] * len(event["inputs"])
        status = asked("POST", "/gradio_api/run/predict", body | {"data": values}).status
        assert event["queue"] and status == 403


@pytest.mark.parametrize("name", ["evil.example", "evil.example:7860", "", "10.0.0.1", "a@b"])
def test_another_name_than_this_machines_is_refused(asked: Ask, name: str) -> None:
    """A page of evil.example, whose name leads here by now, could read and chat (DNS rebinding)."""
    answer = asked("GET", "/config", Host=name, Origin="http://evil.example")
    assert answer.status == 421 and "is not called" in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:7860", "127.0.0.1:80", "[::1]:7860"])
def test_this_machines_own_names_are_served(asked: Ask, name: str) -> None:
    assert asked("GET", "/config", Host=name).status == 200


def test_names_are_told_apart() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "localhost.evil.example", "1.2.3.4"]))


def test_a_websocket_is_refused_where_a_library_for_it_is_installed(asked: Ask) -> None:
    """Without one the server answers as if it were not asked for."""
    wanted = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert asked("GET", "/v1/models", **wanted | key).status in (200, 403)


def test_a_large_body_is_refused_before_it_is_sent(address: Address) -> None:
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(JOIN + b"Content-Length: 300000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_large(address: Address) -> None:
    n_sent = 0
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(JOIN + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.05)
        answer = b""
        while not answer and n_sent < 50 * LONGEST_BODY:
            try:
                connection.sendall(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
                n_sent += 2**16
                answer = connection.recv(100)
            except TimeoutError:
                pass
    assert answer.startswith(b"HTTP/1.1 413 ") and n_sent < 3 * LONGEST_BODY


@pytest.mark.parametrize("where", ["message", "history", "system_prompt"])
def test_a_file_or_an_address_in_a_body_is_refused(asked: Ask, where: str) -> None:
    """Gradio would fetch the address into memory."""
    body = {
        "message": data(FILE),
        "history": data("Hi", [{"role": "user", "content": [{"type": "file", "file": FILE}]}]),
        "system_prompt": data("Hi", [], FILE),
    }[where]
    answer = begin(asked, body)
    assert answer.status == 400 and "takes no files" in answer.text


@pytest.mark.parametrize("body", ["{", "\xff", "[" * 100_000, '{"a": nan}'])
def test_a_body_that_is_not_json_is_refused(asked: Ask, body: str) -> None:
    answer = asked("POST", "/gradio_api/queue/join", body.encode("latin-1"))
    assert answer.status == 400 and "not valid JSON" in answer.text


def test_escapes_do_not_hide_a_file() -> None:
    with pytest.raises(Refused):
        check_json(rb'{"data": [{"p\u0061th": "x"}]}')
    check_json(rb'{"data": ["path", "url", "gradio.FileData", {"text": "path"}]}')


def test_a_document_says_which_scripts_may_run(asked: Ask) -> None:
    answer = asked("GET", "/")
    told = answer.getheader("content-security-policy").split("; ")
    rules = dict(rule.split(" ", 1) for rule in told)
    assert "'unsafe-inline'" not in rules["script-src"] and rules["default-src"] == "'self'"
    inline = re.findall(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", answer.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in inline]
    assert inline and all(f"'sha256-{found}'" in rules["script-src"] for found in hashes)
    assert answer.getheader("x-content-type-options") == "nosniff"
    assert answer.getheader("referrer-policy") == "no-referrer"


def test_a_space_may_be_shown_within_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy(b"").endswith("frame-ancestors 'self'")
    monkeypatch.setenv("SPACE_ID", "me/mine")
    assert policy(b"").endswith("frame-ancestors 'self' https://huggingface.co")


def test_a_reply_that_is_done_before_it_is_asked_for_is_still_read(asked: Ask) -> None:
    event = json.loads(begin(asked, data("Hi", n=4)).text)["event_id"]
    time.sleep(1)  # four tokens take a few milliseconds
    assert "event: complete" in asked("GET", f"/gradio_api/call/chat/{event}").text
    assert asked("GET", f"/gradio_api/call/chat/{event}").status == 404  # read once


def test_one_request_does_not_hold_up_the_others(asked: Ask) -> None:
    history = [{"role": "user", "content": ""}] * 5_000
    start = time.process_time()  # the server is a thread of this process
    event = json.loads(begin(asked, data("Hi", history, n=4)).text)["event_id"]
    assert asked("GET", "/config").status == 200
    assert "event: complete" in asked("GET", f"/gradio_api/call/chat/{event}").text
    assert time.process_time() - start < 3


# ------------------------------------------------------------------ many requests at once


@pytest.fixture(scope="module")
def slow_address(serve: Callable[..., str], slow_model: OnnxModel) -> Address:
    return host_and_port(serve(slow_model))


@pytest.fixture
def slowly(slow_address: Address) -> Iterator[Ask]:
    with asking(slow_address) as ask:
        yield ask


@pytest.mark.slow  # it waits
def test_what_nobody_reads_is_given_up_and_what_is_read_is_not(
    slow_address: Address, slowly: Ask, slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = json.loads(begin(slowly, data("Hi", n=300)).text)["event_id"]
    with closing(HTTPConnection(*slow_address, timeout=SECONDS)) as reader:
        reader.request("GET", f"/gradio_api/call/chat/{read}")
        for _ in range(gptcore.gradio.guard.visitors.EVENTS - 1):
            assert begin(slowly, data("Hi")).status == 200
        answer = begin(slowly, data("Hi"))
        assert answer.status == 429 and "of your requests wait or run" in answer.text
        monkeypatch.setattr(gptcore.gradio.guard.visitors, "UNREAD_SECONDS", 0.5)
        assert answer.getheader("retry-after") == "10"
        assert slowly("GET", "/config").status == 200
        until(lambda: begin(slowly, data("Hi")).status == 200)
        assert "event: complete" in reader.getresponse().read().decode()
    until(lambda: not slow_model.engine.n_running)  # the rest is given up too


def test_so_many_sessions_of_one_address_are_let_in(
    address: Address, asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gptcore.gradio.guard.visitors, "SESSIONS", 3)
    for i in range(6):  # a session whose replies are read is none any more
        assert join_as(asked, f"read-{i}").status == 200
        with asking(address) as reader:
            read = reader("GET", f"/gradio_api/queue/data?session_hash=read-{i}")
        assert "process_completed" in read.text
    answers = [join_as(asked, session) for session in ("a", "b", "c", "d", "a")]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 200]
    assert "too many visitors from your address" in answers[3].text


def join_as(ask: Ask, session: str) -> HTTPResponse:
    dependencies = json.loads(ask("GET", "/config").text)["dependencies"]
    place = next(d["id"] for d in dependencies if d["api_name"] == "chat")
    body = data("Hi", n=1) | {"fn_index": place, "session_hash": session}
    return ask("POST", "/gradio_api/queue/join", body)


def test_an_address_is_what_the_proxy_says_where_there_is_one() -> None:
    headers = [(b"x-forwarded-for", b"6.6.6.6, 1.2.3.4")]
    scope = {"client": ("10.0.0.1", 80), "headers": headers}
    assert Visitors(behind_proxy=False).address(scope) == "10.0.0.1"
    assert Visitors(behind_proxy=True).address(scope) == "1.2.3.4"
    lines = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"1.2.3.4")]
    assert Visitors(behind_proxy=True).address(scope | {"headers": lines}) == "1.2.3.4"
    assert Visitors(behind_proxy=True).address(scope | {"headers": []}) == "10.0.0.1"
    for told, address in ((b"1.2.3.4:5678", "1.2.3.4"), (b"[2001:db8::1]:443", "2001:db8::")):
        headers = [(b"x-forwarded-for", told)]  # with the port, as some proxies write it
        assert Visitors(behind_proxy=True).address(scope | {"headers": headers}) == address


def test_a_reply_ends_when_its_time_is_over(
    slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptcore.engine.streams.REPLY_SECONDS", 1.0)

    async def last() -> Progress:
        messages = [{"role": "user", "content": "Hi"}]
        request = chat_request(slow_model, messages, Sampling(temperature=0.0), 2000)
        return [progress async for progress in stream(slow_model.engine, request)][-1]

    start, computed = time.monotonic(), time.process_time()
    end = asyncio.run(last())
    assert time.monotonic() - start > 1 and time.process_time() - computed < 2.5
    assert 0 < end.piece.n_new < 1999
    assert end.piece.finish == "late"
    assert slow_model.engine.n_running == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [["app.py"], ["-m", "gptcore", "serve", NANO]], ids=str)
def test_who_asks_and_goes_away_in_a_loop_lets_others_in(command: list) -> None:
    def ask_and_go(address: Address) -> None:
        while not is_over.is_set():
            gone.append(address)
            with suppress(OSError), socket.create_connection(address, timeout=1) as connection:
                head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                connection.sendall(head + JSON_LINES + b'Content-Length: 15\r\n\r\n{"prompt": "x"}')

    address, is_over = ("127.0.0.1", free_port()), Event()
    gone: list[Address] = []
    words = [sys.executable, *map(str, command), "--port", str(address[1])]
    with running("crowd", words, address[1]), ThreadPoolExecutor(8) as crowd:
        for _ in range(8):
            crowd.submit(ask_and_go, address)
        while len(gone) < 4096:  # more than wait at any server
            time.sleep(0.01)
        n_answered, most = 0, len(gone) + 8 * 1000  # in an answer's time go up to a hundred
        while n_answered < 8 and len(gone) < most:
            with suppress(OSError), asking(address) as ask:
                n_answered += ask("GET", "/health").status == 200
        is_over.set()
    assert n_answered == 8


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("command", [["app.py"], ["-m", "gptcore", "serve", NANO]], ids=str)
def test_few_descriptors_do_not_stop_the_server(command: list) -> None:
    """A shell's limit of 256, and 300 connections that never say what they want."""
    port = free_port()
    words = " ".join(map(str, [sys.executable, *command, "--port", port]))
    with (
        running("few", ["bash", "-c", f"ulimit -S -n 256; exec {words}"], port),
        ExitStack() as stack,
    ):
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
        with asking(("127.0.0.1", port)) as ask:
            assert ask("GET", "/health").status == 200
