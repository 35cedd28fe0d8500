"""What the API refuses, and how many it serves: bodies, keys, crowds, clients that go away."""

import asyncio
import json
import socket
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
import requests
from api_server import (
    ENDLESS,
    HELLO,
    SECONDS,
    error_of,
    served,
    slow_steps,
    wait_until_idle,
    with_slots,
)
from conftest import until

import gptcore.api.protocol
from gptcore.api.access import GUESSES, LONGEST_BODY, REPLIES, Access, Rate, Refused
from gptcore.api.forms import ChatForm, TextForm
from gptcore.api.routes import Api
from gptcore.api.serve import read_keys
from gptcore.checks import UserError
from gptcore.engine.schemas import grammar
from gptcore.model import OnnxModel
from gptcore.models import Models


@pytest.fixture(scope="module")
def url(nano: OnnxModel) -> Iterator[str]:
    with served(nano, Access()) as address:
        yield address


ENDLESS_NUMBER = b'{"messages": [{"role": "user", "content": "Hi"}], "metadata": {"x": 1e999}}'
LEVELS = b"[" * 900 + b"]" * 900
DEEP = b'{"messages": [{"role": "user", "content": "Hi"}], "metadata": %s}' % LEVELS
NO_REQUESTS = [b"{", b"\xff", b"[" * 100_000, b"", b"null", b"[]", b'"x"', b"NaN"]
NO_REQUESTS += [ENDLESS_NUMBER, DEEP]


@pytest.mark.parametrize("body", NO_REQUESTS, ids=range(len(NO_REQUESTS)))
def test_what_is_no_request_is_refused(url: str, body: bytes) -> None:
    answer = requests.post(f"{url}/v1/chat/completions", data=body, timeout=SECONDS)
    assert error_of(answer, 400)


def test_a_body_that_is_too_long_is_refused_also_in_chunks(url: str) -> None:
    address = f"{url}/v1/chat/completions"
    for data in (b"x" * (LONGEST_BODY + 1), (b"x" * 2**16 for _ in range(40))):
        try:
            answer = requests.post(address, data=data, timeout=SECONDS)
        except requests.ConnectionError:  # it was closed before all was sent
            continue
        error_of(answer, 413)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_row(
    url: str, nano: OnnxModel, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = url.removeprefix("http://").split(":")
    steps = slow_steps(monkeypatch)
    form = {"type": "json_schema", "json_schema": {"schema": ENDLESS}}
    asked = {"messages": HELLO, "stream": stream, "response_format": form, "max_tokens": 450}
    body = json.dumps(asked).encode()
    with socket.create_connection((host, int(port))) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: steps)
    wait_until_idle(nano)
    assert len(steps) < 300  # of 449


def test_a_key_is_needed_where_there_is_one(nano: OnnxModel) -> None:
    with served(nano, Access(keys=["one", "two"])) as url:
        given = {"": "needs a key", "Bearer three": "does not know the key", "one": "needs a key"}
        for key, words in given.items():
            for path in ("/v1/models", "/metrics"):
                sent = {"Authorization": key}
                told = error_of(requests.get(url + path, headers=sent, timeout=SECONDS), 401)
                assert words in told and "one" not in told
        headers = {"Authorization": "Bearer two"}
        assert requests.get(f"{url}/v1/models", headers=headers, timeout=SECONDS).ok
        assert requests.get(f"{url}/health", timeout=SECONDS).ok


def test_keys_are_not_guessed_more_than_so_often_in_a_minute(nano: OnnxModel) -> None:
    with served(nano, Access(keys=["one"], behind_proxy=True)) as url:

        def get(key: str, address: str = "10.0.0.1") -> requests.Response:
            headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": address}
            return requests.get(f"{url}/v1/models", headers=headers, timeout=SECONDS)

        assert get("one").ok
        assert [get(f"k{i}").status_code for i in range(GUESSES)] == [401] * GUESSES
        assert "10 wrong keys from your address in a minute" in error_of(get("one"), 429)
        assert get("one", "10.0.0.2").ok


def test_without_a_proxy_nobody_chooses_the_address_that_guesses_are_counted_by(
    nano: OnnxModel,
) -> None:
    with served(nano, Access(keys=["one"])) as url:
        for i in range(GUESSES + 1):
            headers = {"Authorization": "Bearer two", "X-Forwarded-For": f"10.0.0.{i}"}
            answer = requests.get(f"{url}/v1/models", headers=headers, timeout=SECONDS)
        assert "10 wrong keys from your address in a minute" in error_of(answer, 429)


def test_the_api_alone_is_not_read_under_another_name(nano: OnnxModel, url: str) -> None:
    rebound = {"Host": "evil.example"}  # which leads to 127.0.0.1
    assert "is not called 'evil.example'" in error_of(
        requests.get(f"{url}/v1/models", headers=rebound), 421
    )
    with served(nano, Access(host="0.0.0.0")) as open_url:
        assert requests.get(f"{open_url}/v1/models", headers=rebound).status_code == 200
    with served(nano, Access(behind_proxy=True)) as proxied_url:
        assert requests.get(f"{proxied_url}/v1/models", headers=rebound).status_code == 200


def test_too_many_calls_in_a_minute_are_refused_for_each_key(nano: OnnxModel) -> None:
    with served(nano, Access(keys=["one", "two"], per_minute=2)) as url:
        found = {}
        for key in ("one", "two"):
            headers = {"Authorization": f"Bearer {key}"}
            answers = [
                requests.get(f"{url}/v1/models", headers=headers, timeout=SECONDS) for _ in range(3)
            ]
            found[key] = [answer.status_code for answer in answers]
            wait = int(answers[-1].headers["Retry-After"])
            assert 0 < wait <= 60
            assert f"try again in {wait} seconds" in error_of(answers[-1], 429)
        assert found == {"one": [200, 200, 429], "two": [200, 200, 429]}


def test_the_addresses_of_one_ipv6_network_are_one_visitor(nano: OnnxModel) -> None:
    with served(nano, Access(per_minute=2, behind_proxy=True)) as url:

        def get(address: str) -> int:
            headers = {"X-Forwarded-For": address}
            return requests.get(f"{url}/v1/models", headers=headers, timeout=SECONDS).status_code

        assert [get(f"2001:db8:1:2::{i}") for i in range(1, 4)] == [200, 200, 429]
        assert get("2001:db8:1:2:ffff::9") == 429 and get("2001:db8:1:3::1") == 200
        assert [get("::ffff:10.0.0.1"), get("10.0.0.1"), get("10.0.0.1")] == [200, 200, 429]
        assert get("::ffff:10.0.0.2") == 200


def test_a_minute_later_the_same_key_may_call_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rate, now = Rate(2), 1000.0
    monkeypatch.setattr("gptcore.api.access.time.monotonic", lambda: now)
    for second in (0.0, 30.0):
        now = 1000.0 + second
        rate.check("one")
        rate.count("one")
    for second, is_refused in ((59.0, True), (61.0, False), (89.0, False)):
        now = 1000.0 + second
        with pytest.raises(Refused) if is_refused else nullcontext():
            rate.check("one")
    rate.count("one")
    with pytest.raises(Refused):
        rate.check("one")
    rate.check("two")


def test_of_many_clients_those_who_called_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = Rate(2)
    monkeypatch.setattr("gptcore.api.access.CLIENTS", 3)
    for client in (0, 1, 2, 0, 3):
        rate.count(client)
    assert [*rate.calls] == [2, 0, 3]


def test_a_body_that_does_not_arrive_is_not_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptcore.api.access.BODY_SECONDS", 0.2)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(head + b'Content-Length: 100\r\n\r\n{"messages":')
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_stream_that_nobody_reads_is_given_up(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(nano, access := Access()) as url, socket.socket() as unread:
        ask_for_much(unread, url)
        until(lambda: access.open.total() == REPLIES)
        wait_until_idle(nano)
        time.sleep(1)
        assert access.open.total() == REPLIES  # all is written, and waits to be read
        monkeypatch.setattr(gptcore.api.protocol, "READ_SECONDS", 1.0)
        until(lambda: not access.open)


def test_a_client_that_goes_before_the_first_byte_of_a_stream_holds_no_place(
    nano: OnnxModel,
) -> None:
    """Its connection takes nothing any more, so that the answer is ended before it begins."""
    api, body = Api(Models(nano), access := Access()), {"messages": HELLO, "stream": True}

    async def call() -> None:
        gone, sent = asyncio.Event(), [{"type": "http.request", "body": json.dumps(body).encode()}]

        async def receive() -> dict:
            if not sent:
                await gone.wait()
                return {"type": "http.disconnect"}
            return sent.pop()

        async def send(message: object) -> None:
            assert access.open.total() == 1
            gone.set()
            await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
        scope |= {"query_string": b"", "headers": [(b"host", b"localhost")], "client": ("::1", 5)}
        await api(scope, receive, send)

    asyncio.run(call())
    assert not access.open


def ask_for_much(unread: socket.socket, url: str) -> None:
    """Ask for a stream of 5 MB, which no buffer holds."""
    asked = {"prompt": [[5] * 500] * REPLIES, "max_tokens": 0, "echo": True, "logprobs": 20}
    body = json.dumps(asked | {"stream": True}).encode()
    unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    unread.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    unread.sendall(head + b"Content-Type: application/json\r\n")
    unread.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def test_a_server_ends_within_seconds_though_an_answer_is_not_read(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gptcore.api.protocol, "LAST_SECONDS", 0.5)
    with socket.socket() as unread:
        with served(nano, access := Access()) as url:
            ask_for_much(unread, url)
            until(lambda: access.open.total() == REPLIES)
        wait_until_idle(nano)
    assert not access.open and not caplog.records


def test_all_addresses_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.api.access.ALL_REPLIES", 3)
    access, scopes = Access(), [{"client": (f"10.0.0.{i}", 1), "headers": []} for i in range(4)]
    with ExitStack() as stack:
        for scope in scopes[:3]:
            stack.enter_context(access.answering(scope))
        with pytest.raises(Refused, match="too many pending replies"):
            stack.enter_context(access.answering(scopes[3]))
    with access.answering(scopes[3]):
        assert access.open.total() == 1


def test_pages_of_other_sites_may_call_only_where_they_are_named(nano: OnnxModel) -> None:
    with served(nano, Access(origins=["https://mine.example"])) as url:
        for origin, allowed in (("https://mine.example", True), ("https://evil.example", False)):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = requests.options(f"{url}/v1/models", headers=headers, timeout=SECONDS)
            told = answer.headers.get("Access-Control-Allow-Origin")
            assert (told == origin) is allowed and (allowed or told is None)


def test_another_sites_page_cannot_post_what_needs_no_question_before(nano: OnnxModel) -> None:
    """A browser asks before it sends JSON to another site, and is refused; not for plain text."""
    body = json.dumps({"messages": HELLO, "max_tokens": 1})
    with served(nano, Access(origins=["https://mine.example"])) as url:

        def post(origin: str | None, kind: str = "text/plain") -> int:
            headers = {"Content-Type": kind} | ({"Origin": origin} if origin else {})
            address = f"{url}/v1/chat/completions"
            return requests.post(address, data=body, headers=headers, timeout=SECONDS).status_code

        assert [post(None), post(url), post("https://mine.example")] == [200, 200, 200]
        refused = [post("https://evil.example"), post("null"), post("http://[")]
        assert refused == [403, 403, 403]
        # A program with a window, which asks no such question, says where it comes from, too.
        assert post("app://notes", "application/json") == 200


def test_a_crowd_beyond_what_can_wait_is_told_to_come_again(nano: OnnxModel, monkeypatch) -> None:
    monkeypatch.setattr("gptcore.engine.scheduler.MAX_WAITING", 3)
    with served(with_slots(nano, 1), Access()) as url:
        body = {"messages": HELLO, "n": 10, "temperature": 2, "max_tokens": 400}
        answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=SECONDS)
        assert "try again" in error_of(answer, 429) and int(answer.headers["Retry-After"]) > 0
        assert requests.post(f"{url}/v1/chat/completions", json=body | {"n": 2, "max_tokens": 2},
                             timeout=SECONDS).ok  # fmt: skip


def test_one_address_waits_for_so_many_replies_and_no_more() -> None:
    access = Access(host="0.0.0.0")
    scope = {"type": "http", "headers": [], "client": ("1.2.3.4", 5)}
    with ExitStack() as stack:
        for _ in range(REPLIES - 3):
            stack.enter_context(access.answering(scope))
        with pytest.raises(Refused, match="let one end first"), access.answering(scope, 4):
            pass
        stack.enter_context(access.answering(scope, 3))
        with pytest.raises(Refused, match="let one end first"), access.answering(scope):
            pass
        with access.answering(scope | {"client": ("1.2.3.5", 5)}, REPLIES):
            pass
    assert not access.open


def test_where_this_machine_alone_asks_a_program_may_send_all_it_has_at_once(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `batch` of LangChain does, and OpenAI's client with asyncio.gather."""
    slow_steps(monkeypatch)
    n, body = 4 * REPLIES, {"messages": HELLO, "max_tokens": 20, "temperature": 3}
    with served(nano, Access()) as url, ThreadPoolExecutor(n) as pool:
        path = f"{url}/v1/chat/completions"
        sent = [pool.submit(requests.post, path, json=body, timeout=SECONDS) for _ in range(n)]
        assert {call.result().status_code for call in sent} == {200}


def test_who_asks_for_many_replies_leaves_slots_to_the_others(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = slow_steps(monkeypatch)
    many = {"messages": HELLO, "n": 9, "max_tokens": 450, "temperature": 3, "stream": True}
    with served(nano, Access(behind_proxy=True)) as url:

        def post(address: str, **body: object) -> requests.Response:
            headers = {"X-Forwarded-For": address}
            path = f"{url}/v1/chat/completions"
            return requests.post(path, json=body, headers=headers, timeout=SECONDS, stream=True)

        with post("10.0.0.1", **many) as first:
            assert first.ok
            refused = post("10.0.0.1", **many)
            assert "may wait for 16 replies" in error_of(refused, 429)
            assert int(refused.headers["Retry-After"]) > 0
            assert post("10.0.0.2", messages=HELLO, max_tokens=3).ok
            assert max(steps) <= 10 and nano.engine.n_running  # the first goes on beside it
        wait_until_idle(nano)
        with post("10.0.0.1", **many) as again:
            assert again.ok


def test_a_call_counts_from_its_first_byte(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that does not come would otherwise be waited for any number of times."""
    monkeypatch.setattr("gptcore.api.access.ALL_REPLIES", 3)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    with served(nano, access := Access()) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        for _ in range(3):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            slow.sendall(head)
        until(lambda: access.open.total() >= 3)
        body = {"messages": HELLO, "max_tokens": 1}
        answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=SECONDS)
        assert "too many pending replies" in error_of(answer, 429)


@pytest.mark.parametrize(
    ("form", "method", "path", "asked"),
    [
        (ChatForm, "whole", "chat/completions", {"messages": HELLO}),
        (TextForm, "part", "completions", {"prompt": "A", "echo": True, "stream": True}),
    ],
)
def test_the_server_answers_others_while_it_makes_a_large_answer(
    url: str, monkeypatch: pytest.MonkeyPatch, form: type, method: str, path: str, asked: dict
) -> None:
    made, begun, ended = getattr(form, method), Event(), Event()

    def slow(*values: object) -> object:
        begun.set()
        ended.wait(SECONDS)
        return made(*values)

    monkeypatch.setattr(form, method, slow)
    with ThreadPoolExecutor(1) as pool:
        body = asked | {"max_tokens": 1}
        answer = pool.submit(requests.post, f"{url}/v1/{path}", json=body, timeout=2 * SECONDS)
        try:
            assert begun.wait(SECONDS)
            assert requests.get(f"{url}/health", timeout=SECONDS / 4).ok
        finally:
            ended.set()
        assert answer.result().ok


def test_who_asks_does_not_wait_for_the_schemas_of_others(
    nano: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, ended = grammar.MOST_OF_ONE, Event()
    compile_schema = grammar.compile_schema

    def slow(*values: Any) -> grammar.Grammar:
        ended.wait(SECONDS)
        return compile_schema(*values)

    def post(address: str, **more: object) -> requests.Response:
        asked = {"json": {"messages": HELLO, "max_tokens": 1, **more}, "timeout": SECONDS}
        headers = {"X-Forwarded-For": address}
        return requests.post(f"{url}/v1/chat/completions", headers=headers, **asked)

    monkeypatch.setattr(grammar, "compile_schema", slow)
    form = {"response_format": {"type": "json_object"}}
    with (
        served(nano, Access(behind_proxy=True)) as url,
        ThreadPoolExecutor(grammar.MOST_WAITING) as pool,
    ):
        waiting = [pool.submit(post, "10.0.0.1", **form) for _ in range(n)]
        try:
            until(lambda: grammar.WAITING.total() == n)
            assert post("10.0.0.1").ok
            assert f"{n} schemas wait already" in error_of(post("10.0.0.1", **form), 429)
            rest = range(grammar.MOST_WAITING - n)
            waiting += [pool.submit(post, "10.0.0.2", **form) for _ in rest]
            until(lambda: grammar.WAITING.total() == grammar.MOST_WAITING)
            assert "schemas wait already" in error_of(post("10.0.0.3", **form), 429)
        finally:
            ended.set()
        assert all(answer.result().ok for answer in waiting)
        assert post("10.0.0.1", **form).ok
        assert not grammar.WAITING


def test_a_base_model_completes_and_does_not_chat(nano: OnnxModel) -> None:
    facts = replace(nano.bundle.facts, chat=False)
    base = OnnxModel(replace(nano.bundle, facts=facts), nano.inference, 1, nano.variant)
    with served(base, Access()) as url:
        answer = requests.post(
            f"{url}/v1/chat/completions", json={"messages": HELLO}, timeout=SECONDS
        )
        assert "was not trained on conversations" in error_of(answer, 400)
        body = {"prompt": "Once", "max_tokens": 3}
        assert requests.post(f"{url}/v1/completions", json=body, timeout=SECONDS).ok


def test_a_key_that_programs_send_in_two_ways_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPTCORE_API_KEY", "schlüssel")
    with pytest.raises(UserError, match="ASCII"):
        read_keys(Namespace(api_key=True))
