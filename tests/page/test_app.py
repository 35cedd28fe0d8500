"""The page's endpoint and command line, as a program uses them."""

import dataclasses
import inspect
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from api_server import slow_steps, wait_until_idle
from conftest import NANO, ROOT, SECONDS, Refused, until
from gradio_client import Client
from gradio_client.exceptions import AppError

from gptcore.__main__ import main
from gptcore.bundle import default_model
from gptcore.checks import UserError
from gptcore.engine.inputs import to_settings
from gptcore.engine.sampling import SETTINGS, Sampling
from gptcore.gradio.endpoints import chat_endpoint, completion_endpoint
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.translate import translate_lines
from gptcore.system.network import has_ipv6, in_url, listen, reachable
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import Translation, translate

Serve = Callable[[OnnxModel], str]


@pytest.fixture(scope="module")
def client(serve: Serve, model: OnnxModel) -> Client:
    return Client(serve(model), verbose=False)


def test_chat_is_the_only_public_endpoint(client: Client) -> None:
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert list(endpoints) == ["/chat"]
    parameters = endpoints["/chat"]["parameters"]
    assert [p["parameter_name"] for p in parameters if not p["parameter_has_default"]] == [
        "message"
    ]


def test_the_same_seed_gives_the_same_reply_and_history_changes_it(client: Client) -> None:
    history = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
    ]
    ask = {"message": "What is my name?", "seed": 7, "temperature": 1.5, "api_name": "/chat"}
    first, second = client.predict(**ask), client.predict(**ask)
    assert first == second
    assert client.predict(history=history, **ask) != first


def test_a_job_streams_growing_text(serve: Serve, slow_model: OnnxModel) -> None:
    client = Client(serve(slow_model), verbose=False)
    job = client.submit("Hello!", temperature=0, max_tokens=100, api_name="/chat")
    job.result()
    texts = job.outputs()
    assert len(texts) > 3
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, "temperature=-1"),
        ({"temperature": True}, "temperature=True"),
        ({"max_tokens": 10**9}, "max_tokens=1000000000 is out of range: choose 1 to 256"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": 10.7}, "max_tokens=10.7 is not a whole number"),
        ({"seed": "abc"}, "seed='abc' is not a whole number"),
        ({"top_p": 2}, "top_p=2"),
        ({"history": [{"role": "robot", "content": "x"}]}, "unknown role 'robot'"),
        ({"history": [{"role": "user", "content": 7}]}, "content must be text"),
        ({"history": [5]}, "history must be a list"),
        ({"history": False}, "history must be a list"),
        ({"message": ""}, "the message is empty"),
        ({"message": " \n"}, "the message is empty"),
        ({"message": "x" * 1_000_000}, "the user message is too long"),
        ({"message": 7}, "content must be text"),
        ({"system_prompt": "x " * 3000}, "too long"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_argument_is_named(client: Client, arguments: dict, message: str) -> None:
    with pytest.raises(AppError) as error:
        client.predict(**({"message": "Hello!"} | arguments), api_name="/chat")
    assert message in str(error.value)
    reply = client.predict("Hello!", api_name="/chat")
    assert isinstance(reply, str), "the page goes on working"


def test_not_a_number_is_refused_by_our_own_check() -> None:
    values = dataclasses.asdict(Sampling()) | {"temperature": float("nan"), "max_tokens": 10}
    with pytest.raises(ValueError, match="temperature=nan"):
        to_settings(values, 256)


@pytest.fixture(scope="module")
def translating(
    model: OnnxModel, tiny_translator: OnnxTranslator, serve: Callable[..., str]
) -> Client:
    """A client of a page that translates too."""
    return Client(serve(model, tiny_translator), verbose=False)


LINES = ["跑猫红二。", "睡觉老鼠灰七。"]


def test_the_translate_endpoint_gives_a_line_for_each_line(
    translating: Client, tiny_translator: OnnxTranslator
) -> None:
    endpoints = translating.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert list(endpoints) == ["/chat", "/translate"]
    for beams, arguments in ((4, {}), (1, {"beams": 1})):
        expected = "\n\n".join(translate(tiny_translator, line, beams).text for line in LINES)
        text = "\n\n".join(LINES)  # the empty line stays
        job = translating.submit(text, **arguments, api_name="/translate")
        assert job.result() == expected
        assert job.outputs()[0] == expected.splitlines()[0], "it streams line by line"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beams": 0}, "beams=0 must be a whole number from 1 to 16"),
        ({"beams": 99}, "beams=99 must be a whole number from 1 to 16"),
        ({"beams": 2.5}, "beams=2.5 is not a whole number"),
        ({"beams": True}, "beams=True is not a whole number"),
        ({"beams": None}, "beams is empty"),
        ({"text": " \n"}, "the text is empty"),
        ({"text": 7}, "the text must be a string, not int"),
        ({"text": "跑\n" * 101}, "the text has 101 lines; translate at most 100 at once"),
        ({"text": "跑\n" + "跑" * 100}, "sentence 2: the text"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_translation_request_is_named(
    translating: Client, arguments: dict, message: str
) -> None:
    with pytest.raises(AppError) as error:
        translating.predict(**({"text": LINES[0]} | arguments), api_name="/translate")
    assert message in str(error.value)


def test_a_text_whose_translation_takes_too_long_is_ended_between_two_lines(
    translating: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []

    def slow(*values: object) -> Translation:
        seconds.append(0.5)
        return Translation("ja", [], [], True)

    monkeypatch.setattr("gptcore.page.translate.translate", slow)
    clock = SimpleNamespace(monotonic=lambda: sum(seconds))
    monkeypatch.setattr("gptcore.page.translate.time", clock)
    monkeypatch.setattr("gptcore.page.translate.REPLY_SECONDS", 0.9)
    job = translating.submit("\n".join(LINES * 50), api_name="/translate")
    with pytest.raises(AppError, match="2 of 100 lines were translated"):
        job.result(timeout=SECONDS)
    assert job.outputs() == ["ja", "ja\nja"]


@pytest.mark.parametrize("beams", [float("nan"), float("inf")])
def test_beams_that_are_no_number_are_refused(
    tiny_translator: OnnxTranslator, beams: float
) -> None:
    with pytest.raises(UserError, match=f"beams={beams} is not a whole number"):
        next(translate_lines(tiny_translator, LINES[0], beams))


def test_a_line_ends_where_it_does_in_a_file_of_pairs(tiny_translator: OnnxTranslator) -> None:
    """Only there: the page shows translations beside their lines, the empty ones too."""
    inner = "跑\u2028猫\x85红\v二\f。"
    text = f"\n \r\n{inner}\r{LINES[1]}\n\n"
    found = [result.text for result in translate_lines(tiny_translator, text, 1)]
    one, other = (translate(tiny_translator, line).text for line in (inner, LINES[1]))
    assert found == ["", "", one, other]
    with pytest.raises(UserError, match="the text is empty"):
        next(translate_lines(tiny_translator, "\n \u2028\n", 1))


@pytest.mark.parametrize("endpoint", [chat_endpoint, completion_endpoint])
def test_an_endpoint_takes_every_setting_of_the_table(endpoint: Callable, model: OnnxModel) -> None:
    answer = endpoint(Models(model), lambda: "")
    parameters = inspect.signature(answer).parameters
    for setting in SETTINGS:
        assert parameters[setting.name].default == setting.default
        assert parameters[setting.name].annotation is (int if setting.is_whole else float)
    told = inspect.getdoc(answer).partition("Parameters:")[2]
    assert re.findall(r"^ +(\w+): ", told, re.MULTILINE) == list(parameters)


def test_a_cancelled_job_stops_the_computation(
    serve: Serve, slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = slow_steps(monkeypatch)
    client = Client(serve(slow_model), verbose=False)
    job = client.submit("Hello!", temperature=0, max_tokens=2000, api_name="/chat")
    until(lambda: len(job.outputs()) >= 2)
    job.cancel()
    wait_until_idle(slow_model)
    assert len(steps) < 1000  # of 2000


def test_a_port_in_use_gives_a_clear_error(refused: Refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(main, "--port", port)
    assert f"cannot listen on 127.0.0.1:{port} (another program, perhaps another gptcore," in said
    assert said.endswith("has this port): choose another one, or any free one with --port 0")


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6")
@pytest.mark.parametrize("words", [[], ["serve"]])
@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_no_other_program_may_have_the_port_at_localhost(
    refused: Refused, words: list[str], host: str, other: str
) -> None:
    with listen(other, 0) as taken:
        port = taken.getsockname()[1]
        said = refused(main, *words, "--host", host, "--port", port, "--rate-limit", 0)
    assert f"cannot listen on {in_url(other)}:{port} " in said
    assert f"which is localhost as {in_url(host)} is: choose another one, or any free one" in said


@pytest.mark.slow
@pytest.mark.parametrize("host", ["::1", "::"])
def test_the_page_listens_on_a_free_port_of_an_ipv6_address(model_folder: Path, host: str) -> None:
    command = [sys.executable, "app.py", "--model", model_folder, "--host", host, "--port", 0]
    page = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        address = next(line for line in page.stdout if line.startswith(b"http")).decode().split()[0]
        begin, port = re.fullmatch(r"(http://.*):(\d+)(?:/\?token=.*)?", address).groups()
        assert begin == f"http://{reachable(host)}"
        assert ("?token=" in address) == (host == "::")  # others could reach it
        assert wait_for_answer(f"http://[::1]:{port}/health") == 200
    finally:
        page.terminate()
        page.communicate()


def wait_for_answer(url: str) -> int:
    """The HTTP status of a server that may still be starting."""
    for _ in range(600):
        try:
            return urllib.request.urlopen(url).status
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


@pytest.mark.parametrize("host", ["0.0.0.0", *["::"] * has_ipv6()])
def test_a_server_on_all_addresses_is_reached_at_the_one_that_is_told(host: str) -> None:
    with listen(host, 0) as server:
        address = reachable(host).strip("[]"), server.getsockname()[1]
        socket.create_connection(address).close()


@pytest.mark.parametrize("wrong", ["--host=nohost.invalid", "--host=a..b"])
def test_an_address_that_cannot_be_is_refused(refused: Refused, wrong: str) -> None:
    assert refused(main, wrong).startswith("error: cannot listen on ")


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_a_port_that_cannot_be_is_refused(refused: Refused, port: int) -> None:
    said = f"error: --port {port} is out of range: a port is a number from 1 to 65535"
    assert refused(main, f"--port={port}") == said
    assert refused(main, "serve", f"--port={port}") == said


def test_a_wrong_option_of_the_api_is_told_before_anything_is_loaded(
    tmp_path: Path, refused: Refused
) -> None:
    shutil.copy(NANO / "gptcore.json", tmp_path)  # without what it lists
    said = refused(main, "--model", tmp_path, "--port", 0, "--rate-limit", 0)
    assert said.startswith("error: --rate-limit 0: choose 1 or more")


@pytest.mark.parametrize("origin", ["example.com", "https://example.com/", "https://a.com/page"])
def test_an_origin_that_no_browser_sends_is_refused(origin: str, refused: Refused) -> None:
    said = refused(main, "--model", NANO, "--port", 0, "--cors", "http://localhost:5173", origin)
    assert said.startswith(f"error: --cors {origin}: name pages by how")


def test_the_model_that_ships_greets_back(serve: Serve) -> None:
    shipped = load_model(default_model())
    reply = Client(serve(shipped), verbose=False).predict("Hello!", temperature=0, api_name="/chat")
    assert reply.lower().startswith(("hello", "hi", "hey"))
    sizes = [path.stat().st_size for path in default_model().rglob("*") if path.is_file()]
    assert max(sizes) < 10_000_000, "a plain git push to a Space takes no larger file"
    assert json.loads((default_model() / "gptcore.json").read_text())["parity"]
