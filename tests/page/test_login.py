"""Who may use a page that other machines reach: over real connections, and in a browser."""

import base64
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING

import pytest
from conftest import NANO, ROOT, SECONDS, Refused
from gradio_client import Client

from benchmarks.crowds.servers import free_port, wait_until_ready
from gptcore.__main__ import main
from gptcore.api.access import GUESSES, Access
from gptcore.api.login import Login
from gptcore.checks import UserError
from gptcore.gradio.build import launch_page
from gptcore.gradio.launch import choose_login
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOKEN = "a-token-of-the-tests"
PLACES = ["/", "/config", "/gradio_api/info", "/v1/models", "/metrics", "/gradio_api/heartbeat/x"]


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return load_model(NANO, threads=1)


@contextmanager
def served(model: OnnxModel, login: Login | None, *keys: str) -> Iterator[str]:
    access = Access(keys, ["https://mine.example"], host="0.0.0.0")
    page = launch_page(Models(model), access=access, login=login, prevent_thread_lock=True)
    try:
        yield page.local_url
    finally:
        page.close()


@pytest.fixture(scope="module")
def linked(model: OnnxModel) -> Iterator[str]:
    with served(model, Login(token=TOKEN)) as url:
        yield url


@pytest.fixture
def locked(model: OnnxModel) -> Iterator[str]:
    with served(model, Login(user="ada", password="pass:wörd")) as url:
        yield url


def get(url: str, path: str, **headers: str) -> HTTPResponse:
    connection = HTTPConnection(url.removeprefix("http://").strip("/"), timeout=SECONDS)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.text = "" if "heartbeat" in path and answer.status == 200 else answer.read().decode()
    connection.close()
    return answer


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("path", PLACES)
def test_a_stranger_sees_nothing(linked: str, path: str) -> None:
    answer = get(linked, path)
    assert answer.status == 401 and "open this page by the link" in answer.text
    assert "www-authenticate" not in answer.headers
    name = Login(token=TOKEN).cookie
    assert get(linked, path, Cookie=f"{name}=wrong; other=1").status == 401
    assert get(linked, path, Cookie=f"{name}=").status == 401


def test_whether_the_server_is_well_is_told_to_all(linked: str) -> None:
    assert get(linked, "/health").status == get(linked, "/ready").status == 200


def test_the_link_lets_in_and_is_not_kept_in_the_address(linked: str) -> None:
    answer = get(linked, f"/?token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    for path in PLACES:
        ours = cookie.split(";")[0]
        assert get(linked, path, Cookie=ours).status == 200, path
        # Those of another server on this host, which Python's own parser gives up at.
        assert get(linked, path, Cookie=f'a={{"x":1}}; foo; {ours}').status == 200, path
        assert get(linked, path, Authorization=f"Bearer {TOKEN}").status == 200, path


def test_two_pages_of_one_host_do_not_log_each_other_out(linked: str, model: OnnxModel) -> None:
    with served(model, Login(token="another-token")) as other:
        jar: dict[str, str] = {}  # a browser keeps the cookies of all ports of a host together
        for url, token in ((linked, TOKEN), (other, "another-token")):
            cookie = get(url, f"/?token={token}").headers["set-cookie"].split(";")[0]
            jar |= [cookie.split("=")]
        both = "; ".join(f"{name}={value}" for name, value in jar.items())
        assert get(linked, "/", Cookie=both).status == get(other, "/", Cookie=both).status == 200


def allowed(url: str, path: str, origin: str) -> str | None:
    """Which site's page a browser is told may post, when it asks before it does, without a key."""
    asked = {"Origin": origin, "Host": "chat.example", "Access-Control-Request-Method": "POST"}
    connection = HTTPConnection(url.removeprefix("http://").strip("/"), timeout=SECONDS)
    connection.request("OPTIONS", path, headers=asked)
    with connection.getresponse() as answer:
        return answer.headers["Access-Control-Allow-Origin"]


def test_pages_of_other_sites_may_call_the_api_where_they_are_named(
    linked: str, model: OnnxModel
) -> None:
    mine, evil = "https://mine.example", "https://evil.example"
    with served(model, None) as public:
        for url in (linked, public):
            assert allowed(url, "/v1/chat/completions", mine) == mine
            assert allowed(url, "/v1/chat/completions", evil) is None
    assert allowed(linked, "/gradio_api/queue/join", evil) is None


def test_a_program_comes_in_with_the_token(linked: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    client = Client(linked, verbose=False, headers=headers)
    assert client.predict("Hello!", temperature=0, api_name="/chat")


def test_a_password_is_asked_for_and_guesses_are_counted(locked: str) -> None:
    answer = get(locked, "/")
    assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Basic realm=")
    known = basic("ada", "pass:wörd")
    assert get(locked, "/v1/models", Authorization=known).status == 200
    for told in (basic("ada", "x"), basic("", ""), "Basic ???", f"Bearer {TOKEN}", "Basic"):
        assert get(locked, "/", Authorization=told).status == 401
    for _ in range(GUESSES - 5):
        assert get(locked, "/?token=x").status == 401  # no guess: there is no link
        assert get(locked, "/", Authorization=basic("ada", "x")).status == 401
    answer = get(locked, "/", Authorization=basic("ada", "another"))
    assert answer.status == 429 and answer.headers["retry-after"]


def test_guesses_at_the_link_do_not_count_against_the_keys(model: OnnxModel) -> None:
    """A page of another site can send a browser to wrong links."""
    with served(model, Login(token=TOKEN), "a-key") as url:
        for _ in range(GUESSES):
            assert get(url, "/?token=wrong").status == 401
        assert get(url, f"/?token={TOKEN}").status == 429
        for _ in range(GUESSES):
            assert get(url, "/v1/models", Authorization="Bearer a-key").status == 200
        for _ in range(GUESSES):
            assert get(url, "/v1/models", Authorization="Bearer wrong").status == 401
        assert get(url, "/v1/models", Authorization="Bearer a-key").status == 429


def test_keys_of_the_api_need_nothing_else(model: OnnxModel) -> None:
    with served(model, Login(token=TOKEN), "a-key") as url:
        for path in ("/v1/models", "/metrics"):  # no call can tell a password and a key
            assert get(url, path, Authorization="Bearer a-key").status == 200
            assert get(url, path).status == 401
        assert get(url, "/config").status == 401
        assert get(url, "/config", Authorization="Bearer a-key").status == 401


OPTIONS = Namespace(auth=None, public=False, behind_proxy=False)


def options(**told: object) -> Namespace:
    return Namespace(**vars(OPTIONS) | told)


def test_only_a_page_that_others_reach_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert choose_login(OPTIONS, host) is None
    for host in ("0.0.0.0", "::", "192.168.1.5", ""):
        assert choose_login(options(public=True), host) is None
        token = choose_login(OPTIONS, host).token
        assert len(token) >= 32 and token != choose_login(OPTIONS, host).token
    proxied = options(behind_proxy=True)  # the proxy reaches 127.0.0.1 for everyone
    assert len(choose_login(proxied, "127.0.0.1").token) >= 32
    assert choose_login(options(behind_proxy=True, public=True), "127.0.0.1") is None
    monkeypatch.setenv("GPTCORE_PASSWORD", "secret")
    assert choose_login(options(auth="ada", public=True), "127.0.0.1").basic == b"ada:secret"
    for user in ("a:b", ""):
        with pytest.raises(UserError, match="without a colon"):
            choose_login(options(auth=user), "0.0.0.0")
    monkeypatch.setenv("GPTCORE_PASSWORD", "")
    monkeypatch.setattr("getpass.getpass", lambda asked: "")
    with pytest.raises(UserError, match="the password is empty: set GPTCORE_PASSWORD"):
        choose_login(options(auth="ada"), "0.0.0.0")


def test_where_no_terminal_is_to_type_a_key_at_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPTCORE_API_KEY", raising=False)
    command = [sys.executable, "-m", "gptcore", "serve", "--api-key", "--port", "0"]
    told = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        start_new_session=True,
    )
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert "error: there is no terminal to type at: set GPTCORE_API_KEY" in told.stderr


@pytest.mark.parametrize("door", [["--host", "0.0.0.0"], ["--behind-proxy"]])
def test_the_api_alone_asks_for_keys_where_others_reach_it(
    refused: Refused, door: list[str]
) -> None:
    said = refused(main, "serve", *door, "--port", 0)
    assert f"{' '.join(door)}: everyone" in said and "add --api-key, or --public" in said


def test_a_browser_chats_by_the_link_and_by_the_password(
    browser: "Browser", linked: str, locked: str
) -> None:
    tab = browser.new_page()
    tab.goto(linked)
    assert tab.get_by_text("open this page by the link that the server printed").is_visible()
    tab.goto(f"{linked}?token={TOKEN}")
    assert tab.url == linked
    ask(tab)
    tab.close()
    person = browser.new_context(http_credentials={"username": "ada", "password": "pass:wörd"})
    tab = person.new_page()
    tab.goto(locked)
    ask(tab)
    person.close()


def ask(tab: object) -> None:
    box = tab.get_by_placeholder("Type a message")
    box.fill("Hello!")
    box.press("Enter")
    tab.locator(".message.assistant .tools").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("door", [["--host", "0.0.0.0"], ["--behind-proxy"]])
def test_the_command_prints_a_link_that_works(door: list[str]) -> None:
    port = free_port()
    command = [sys.executable, "app.py", *door, "--port", port, "--model", NANO]
    words = [str(word) for word in command]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stdout if "?token=" in line)
            wait_until_ready(port)
            token = re.search(r"/\?token=(\S+)\s", line)[1]
            assert get(f"http://127.0.0.1:{port}", f"/?token={token}").status == 303
            assert get(f"http://127.0.0.1:{port}", "/").status == 401
            visitor = {"Host": "chat.example.org", "X-Forwarded-For": "203.0.113.9"}
            assert get(f"http://127.0.0.1:{port}", "/v1/models", **visitor).status == 401
        finally:
            process.terminate()
