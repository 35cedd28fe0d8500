"""What the page's server refuses, asked over real connections as a stranger would."""

import base64
import hashlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from gptcore.onnx_session import load_model
from gptcore.page.guard import LONGEST_BODY, check_json, is_loopback, policy

FIRST = Path(__file__).parent / "fixtures" / "first_format"
JSON = {"Content-Type": "application/json"}
JOIN = b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\n"
FILE = {"path": "/x", "url": "http://127.0.0.1:1/x", "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="module")
def address(serve: Callable[..., str]) -> tuple[str, int]:
    url = serve(load_model(FIRST / "model", threads=1, variant="fp32"))
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/", url).groups()
    return host, int(port)


@pytest.fixture
def asked(address: tuple[str, int]) -> Iterator[Callable[..., HTTPResponse]]:
    """Sends a request; the answer, whose body is read."""
    with closing(HTTPConnection(*address, timeout=30)) as connection:

        def ask(method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
            sent = json.dumps(body) if isinstance(body, dict | list) else body
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, sent, JSON | given)
            answer = connection.getresponse()
            answer.text = answer.read().decode()
            return answer

        yield ask


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", "/theme.css"])
def test_what_the_page_needs_is_served(asked: Callable[..., HTTPResponse], path: str) -> None:
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
    ],
)
def test_what_the_page_does_not_need_is_refused(
    asked: Callable[..., HTTPResponse], method: str, path: str
) -> None:
    answer = asked(method, path)
    assert answer.status == 403 and "does not use that address" in answer.text


@pytest.mark.parametrize("name", ["evil.example", "evil.example:7860", "", "10.0.0.1", "a@b"])
def test_another_name_than_this_machines_is_refused(
    asked: Callable[..., HTTPResponse], name: str
) -> None:
    """A page of evil.example, whose name leads here by now, could read and chat (DNS rebinding)."""
    answer = asked("GET", "/config", Host=name, Origin="http://evil.example")
    assert answer.status == 421 and "not served as" in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:7860", "127.0.0.1:80", "[::1]:7860"])
def test_this_machines_own_names_are_served(asked: Callable[..., HTTPResponse], name: str) -> None:
    assert asked("GET", "/config", Host=name).status == 200


def test_names_are_told_apart() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "localhost.evil.example", "1.2.3.4"]))


def test_a_large_body_is_refused_before_it_is_sent(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(JOIN + b"Content-Length: 300000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_large(address: tuple[str, int]) -> None:
    n_sent = 0
    with socket.create_connection(address, timeout=30) as connection:
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
def test_a_file_or_an_address_in_a_body_is_refused(
    asked: Callable[..., HTTPResponse], where: str
) -> None:
    """Gradio would fetch the address into memory."""
    data = {
        "message": [FILE],
        "history": ["Hi", [{"role": "user", "content": [{"type": "file", "file": FILE}]}]],
        "system_prompt": ["Hi", [], FILE],
    }[where]
    answer = asked("POST", "/gradio_api/call/chat", {"data": data})
    assert answer.status == 400 and "takes no files" in answer.text


@pytest.mark.parametrize("body", ["{", "\xff", "[" * 100_000, '{"a": nan}'])
def test_a_body_that_is_not_json_is_refused(asked: Callable[..., HTTPResponse], body: str) -> None:
    answer = asked("POST", "/gradio_api/queue/join", body.encode("latin-1"))
    assert answer.status == 400 and "not valid JSON" in answer.text


def test_escapes_do_not_hide_a_file() -> None:
    from gptcore.page.guard import Refused

    with pytest.raises(Refused):
        check_json(rb'{"data": [{"p\u0061th": "x"}]}')
    check_json(rb'{"data": ["path", "url", "gradio.FileData", {"text": "path"}]}')


def test_a_document_says_which_scripts_may_run(asked: Callable[..., HTTPResponse]) -> None:
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


def test_one_request_does_not_hold_up_the_others(asked: Callable[..., HTTPResponse]) -> None:
    history = [{"role": "user", "content": ""}] * 5_000
    start = time.monotonic()
    answer = asked("POST", "/gradio_api/call/chat", {"data": ["Hi", history, "", 0.7, 4]})
    assert answer.status == 200, answer.text
    assert asked("GET", "/config").status == 200
    assert time.monotonic() - start < 3
