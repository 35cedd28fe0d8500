"""The window's own server, what it keeps between its starts, and what people are told."""

import json
import os
import re
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import requests
from api_server import ENDLESS, running, slow_steps, wait_until_idle
from conftest import SECONDS, Refused

import gptcore.window.home
from export.folder.replace import write_list
from gptcore.__main__ import main
from gptcore.bundle import default_model
from gptcore.checks import UserError
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.translate import translate_lines
from gptcore.system.network import has_ipv6, listen
from gptcore.translation.onnx import OnnxTranslator
from gptcore.window.application import LOG, add_to_menu, check_files, open_log
from gptcore.window.browser import CHOSEN, Browser, find_browser
from gptcore.window.door import Door
from gptcore.window.home import AlreadyOpen, Home
from gptcore.window.open import open_window
from gptcore.window.server import window_app
from gptcore.window.webview import sound_size

HELLO = [{"role": "user", "content": "Tell me a story about a cat."}]
SETTINGS = {"temperature": 1.2, "seed": 7, "max_tokens": 40}
MEASURED = ("first_ms", "speed")


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return load_model(default_model(), threads=1)


@pytest.fixture(scope="module")
def address(model: OnnxModel) -> Iterator[str]:
    with running(Door(lambda: window_app(Models(model)), print, "a", Path())) as found:
        yield found


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> range:
    """Those of this process: Gradio's pages in another one's tests begin at the same as windows."""
    first = 20_000 + 100 * (os.getpid() % 100)
    own = range(first, first + 100)
    monkeypatch.setattr(gptcore.window.home, "PORTS", own)
    return own


def events(response: requests.Response) -> list[dict]:
    lines = response.iter_lines(decode_unicode=True)
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def ask(address: str, name: str, *values: object) -> list[dict]:
    return events(
        requests.post(f"{address}/ask/{name}", json=[*values], stream=True, timeout=SECONDS)
    )


def ask_gradio(url: str, name: str, *values: object) -> list[dict]:
    """The same by Gradio's queue, whose later outputs are differences that replace the value."""
    number = requests.get(f"{url}view/facts.json", timeout=SECONDS).json()["events"][name]
    session = {"session_hash": "window"}
    body = {"data": [*values], "fn_index": number} | session
    requests.post(f"{url}gradio_api/queue/join", json=body, timeout=SECONDS).raise_for_status()
    answer = requests.get(f"{url}gradio_api/queue/data", session, stream=True, timeout=SECONDS)
    found = []
    for message in events(answer):
        if message["msg"] == "process_generating":
            (value,) = message["output"]["data"]
            found.append(json.loads(value if isinstance(value, str) else value[-1][-1]))
    return found


def whole(told: list[dict]) -> dict:
    """A reply of events, which come as often as there is time, in one; without its times."""
    first, *later = told
    last = {k: v for k, v in later[-1].items() if k not in (*MEASURED, "tokens", "text")}
    tokens = [token for event in told for token in event["tokens"]]
    return {**first, **last, "tokens": tokens, "text": "".join(event["text"] for event in later)}


@pytest.mark.slow  # importing Gradio
def test_a_reply_has_the_same_events_as_in_the_gradio_page(
    serve: Callable[..., str], model: OnnxModel, address: str
) -> None:
    values = HELLO, SETTINGS, [], None
    ours, theirs = ask(address, "reply", *values), ask_gradio(serve(model), "reply", *values)
    assert whole(ours)["n_new"] > 10
    assert whole(ours) == whole(theirs)


def test_inspect_and_translate_answer_as_events(
    model: OnnxModel, tiny_translator: OnnxTranslator
) -> None:
    with running(window_app(Models(model), tiny_translator)) as address:
        (seen,) = ask(address, "inspect", "Hello there", 0, None, False)
        told = ask(address, "translation", "hello\n\nhello", 1)
        facts = requests.get(f"{address}/view/facts.json", timeout=SECONDS).json()
    assert seen["arrays"]["attention"]["data"]
    told_special = {text: is_special for _, text, is_special in seen["tokens"]}
    assert told_special["<|user|>"] and not told_special[" there"]
    expected = translate_lines(tiny_translator, "hello\n\nhello", 1)
    assert [event["text"] for event in told] == [line.text for line in expected]
    assert facts["translator"]["name"] == tiny_translator.bundle.name and not facts["train"]


def test_a_mistake_is_the_last_event(address: str) -> None:
    (told,) = ask(address, "reply", HELLO, {"temperature": -1}, [], None)
    assert "temperature=-1 is out of range" in told["error"]


def test_the_computation_ends_with_the_connection(
    address: str, model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [HELLO, {"max_tokens": 400, "schema": json.dumps(ENDLESS)}, [], None]
    steps = slow_steps(monkeypatch)
    with requests.post(f"{address}/ask/reply", json=values, stream=True, timeout=SECONDS) as answer:
        lines = filter(None, answer.iter_lines())
        assert next(lines) and next(lines)  # the prompt, and the first tokens
    wait_until_idle(model)
    assert 0 < len(steps) < 300  # of 400


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "words"),
    [
        ("ask/nothing", [], {}, 404, "this page has no 'nothing'"),
        ("ask/reply", [1], {}, 400, "reply takes a list of 4 values: prompt, settings, begun"),
        ("ask/reply", {"a": 1}, {}, 400, "reply takes a list of 4 values"),
        ("ask/reply", [], {"Origin": "http://elsewhere.org"}, 403, "use this server's own page"),
        ("v1/completions", {}, {"Origin": "http://elsewhere.org"}, 403, "a page of another site"),
        ("ask/reply", [], {"Host": "elsewhere.org"}, 421, "this server is not called"),
        ("open", "file:///etc/passwd", {}, 400, "only an address of http, https, mailto is opened"),
        ("open", ["http://a.org"], {}, 400, "only an address"),
        ("open", "//[", {}, 400, "only an address"),
    ],
    ids=str,
)
def test_what_the_window_does_not_ask_is_refused(
    address: str, path: str, content: object, headers: dict, status: int, words: str
) -> None:
    answer = requests.post(f"{address}/{path}", json=content, headers=headers, timeout=SECONDS)
    assert answer.status_code == status and words in answer.json()["detail"]


def test_a_browser_that_opens_slowly_holds_up_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, opened = Event(), Event()
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.set() or opened.wait(SECONDS))
    link = Thread(target=requests.post, args=(f"{address}/open",), kwargs={"json": "http://a.org"})
    link.start()
    try:
        assert asked.wait(SECONDS)
        assert requests.get(address, timeout=SECONDS).ok and link.is_alive()
    finally:
        opened.set()
        link.join()


def test_the_page_may_load_nothing_from_elsewhere_and_the_api_is_beside_it(address: str) -> None:
    page = requests.get(address, timeout=SECONDS)
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    for path in re.findall(r'(?:href|src)="([^"]+)"', page.text):
        assert requests.get(f"{address}/{path}", timeout=SECONDS).ok, path
    asked = {"messages": HELLO, "max_tokens": 3}
    assert requests.post(f"{address}/v1/chat/completions", json=asked, timeout=SECONDS).ok


# ---------------------------------------------------------------- between the starts


def test_the_port_of_the_first_start_is_that_of_later_ones(tmp_path: Path, ports: range) -> None:
    with listening(Home(tmp_path)) as port, listening(Home(tmp_path / "other")) as other:
        assert port in ports and other > port
    with listening(Home(tmp_path)) as again:
        assert again == port


def test_of_two_first_starts_at_once_one_is_the_window(tmp_path: Path) -> None:
    with listening(Home(tmp_path)) as port:
        pass
    app = Door(lambda: None, print, "nano", tmp_path)  # type: ignore
    with running(app, port), pytest.raises(AlreadyOpen):
        Home(tmp_path).first_listen()  # as one that looked before the other one remembered
    assert Home(tmp_path).known() == {"port": port}
    assert [path.name for path in tmp_path.iterdir()] == ["window.json"]


@contextmanager
def listening(home: Home) -> Iterator[int]:
    """The port of a window of this home that does not answer yet."""
    with ExitStack() as held:
        sockets = [held.enter_context(bound) for bound in home.listen()]
        yield sockets[0].getsockname()[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux lists them in a file")
def test_ipv6_is_found_where_the_kernel_has_it() -> None:
    addresses = Path("/proc/net/if_inet6")
    has_it = addresses.exists() and f"{1:032x} " in addresses.read_text()
    assert has_ipv6() == has_it


@pytest.mark.parametrize("address", ["127.0.0.1", *["::1"] * has_ipv6()])
def test_nobody_else_has_the_port_at_either_address_of_localhost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(gptcore.window.home, "SECONDS", 0.1)  # until what says nothing is given up
    with listening(home := Home(tmp_path)) as port, pytest.raises(OSError):
        listen(address, port)
    said = rf"another program has port {port}, .+ delete {home.file} .+"
    with listen(address, port), pytest.raises(UserError, match=said):
        home.listen()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", *(f'{{"port": {port}}}' for port in ('"x"', "true", "0", "99999"))]
)
def test_a_damaged_memory_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    home.file.write_text(text)
    with listening(home) as port:
        assert home.known()["port"] == port


@pytest.mark.parametrize(
    ("kept", "width"),
    [
        ({"width": 900, "height": 700.0}, 900),
        (None, 1200),
        ("wide", 1200),
        (["width"], 1200),
        ({"width": 900}, 1200),
        ({"width": "x", "height": 700}, 1200),
        ({"width": -5, "height": 700}, 1200),
        ({"width": float("inf"), "height": 700}, 1200),
    ],
    ids=str,
)
def test_a_damaged_size_is_as_good_as_none(kept: object, width: int) -> None:
    assert sound_size(kept)["width"] == width


def test_a_home_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        Home(tmp_path / "file" / "home").listen()


def test_a_second_start_brings_the_window_forward_also_while_it_loads(tmp_path: Path) -> None:
    home, shown, loads = Home(tmp_path), [], Event()
    with listening(home) as port:
        pass
    app = Door(lambda: loads.wait(SECONDS), lambda: shown.append(1), "nano", tmp_path)  # type: ignore
    with running(app, port) as address:
        told = rf"open already: http://localhost:{port} \(nano\)"
        with pytest.raises(AlreadyOpen, match=told):
            home.listen()
        assert shown
        answer = requests.post(f"{address}/show", json="/another/folder", timeout=SECONDS)
        assert answer.status_code == 409 and "of another program" in answer.json()["detail"]
        headers = {"Origin": "http://elsewhere.org"}
        answer = requests.post(
            f"{address}/show", json=str(tmp_path), headers=headers, timeout=SECONDS
        )
        assert answer.status_code == 403 and len(shown) == 1
    loads.set()


# ---------------------------------------------------------------- what people are told


def test_a_window_needs_a_display(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert "there is no display for a window" in refused(main, "--window")


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "0.0.0.0"],
        ["--auth", "ada"],
        ["--auth", ""],
        ["--api-key"],
        ["--public"],
        ["--cors", "https://a.example"],
        ["--rate-limit", "9"],
        ["--rate-limit", "0"],
        ["--behind-proxy"],
    ],
    ids=" ".join,
)
def test_a_window_is_for_this_machine_alone(refused: Refused, words: list[str]) -> None:
    said = refused(main, "--window", *words)
    assert f"--window is for this machine alone: leave out {words[0]}" in said


def test_a_window_has_a_port_of_its_own(refused: Refused) -> None:
    assert "leave out --port" in refused(main, "--window", "--port", "9999")


def test_a_browser_is_named_by_its_path_or_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my browser"
    path.touch()
    for platform, line, words in (
        ("linux", str(path), [str(path)]),
        ("linux", "'/my browser' --incognito", ["/my browser", "--incognito"]),
        ("win32", r"C:\Chrome\chrome.exe", [r"C:\Chrome\chrome.exe"]),
        ("win32", r'"C:\My Files\a.exe" "--x=y z"', [r"C:\My Files\a.exe", "--x=y z"]),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv(CHOSEN, line)
        assert find_browser() == words


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_a_quotation_mark_that_is_left_open_is_told(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(CHOSEN, 'firefox "--kiosk')
    with pytest.raises(UserError, match=r'GPTCORE_BROWSER \(firefox "--kiosk\): a quotation mark'):
        find_browser()


def test_a_window_needs_a_browser_or_a_webview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="install Chromium, Chrome or Edge"):
        find_browser()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (" ", "GPTCORE_BROWSER is blank"),
        ("/no/such/browser", "/no/such/browser cannot be started .+ in GPTCORE_BROWSER"),
        ("/", "/ cannot be started"),
    ],
)
def test_a_browser_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv(CHOSEN, line)
    with pytest.raises(UserError, match=said):
        Browser(find_browser(), "http://localhost:1", tmp_path)


# A browser that shows nothing: it writes what the page answers, and then its window is closed.
READS = """
import sys, urllib.error, urllib.request
url = next(word for word in sys.argv if word.startswith("--app="))[6:]
try:
    text = urllib.request.urlopen(url).read()
except urllib.error.HTTPError as error:
    text = error.read()
open(sys.argv[1], "wb").write(text)
"""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file where such a browser writes what it was answered."""
    (tmp_path / "reads.py").write_text(READS)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv(CHOSEN, f"'{sys.executable}' {tmp_path / 'reads.py'} {tmp_path / 'answer'}")
    return tmp_path / "answer"


def test_the_server_ends_with_its_window(reader: Path, tmp_path: Path, model: OnnxModel) -> None:
    home = Home(tmp_path / "home")
    assert open_window(lambda: window_app(Models(model)), home, "a") == 0
    assert "view/window.js" in reader.read_text()
    with listening(home):
        pass  # its port is free


# A browser that hands its window to an older one, whose program was killed, and ends.
HANDS_OVER = """
import os, subprocess, sys
lock = os.path.join(sys.argv[4].removeprefix("--user-data-dir="), "SingletonLock")
older = subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2], sys.argv[3], lock])
os.symlink(f"a-host-{older.pid}", lock)
"""
OLDER = f"""
import os, sys, time
time.sleep(1)
{READS}
os.unlink(sys.argv[3])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Chromium locks its folder otherwise there")
def test_the_server_waits_for_an_older_browser_that_took_the_window_over(
    reader: Path, tmp_path: Path, model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, older = tmp_path / "newer.py", tmp_path / "older.py"
    newer.write_text(HANDS_OVER)
    older.write_text(OLDER)
    monkeypatch.setenv(CHOSEN, f"'{sys.executable}' {newer} {older} {reader}")
    assert open_window(lambda: window_app(Models(model)), Home(tmp_path / "home"), "a") == 0
    assert "view/window.js" in reader.read_text()


def test_a_window_that_is_closed_while_it_loads_ends_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The browser asks for the page, and is gone before there is one."""
    gone = "import sys, urllib.request as r; r.urlopen(sys.argv[1][6:], timeout=1)"
    (tmp_path / "gone.py").write_text(
        f"try:\n    {gone}\nexcept TimeoutError:\n    sys.exit()\nsys.exit('there was an answer')"
    )
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv(CHOSEN, f"'{sys.executable}' {tmp_path / 'gone.py'}")
    loads = Event()
    home = Home(tmp_path / "home")
    assert open_window(lambda: loads.wait(SECONDS), home, "a") == 0  # type: ignore
    loads.set()
    out, error = capfd.readouterr()
    assert out.count("\n") == 1 and error == ""


def test_the_window_shows_why_nothing_can_be_served(reader: Path, tmp_path: Path) -> None:
    def load() -> None:
        raise UserError("model.onnx is damaged")

    with pytest.raises(UserError, match=r"model\.onnx is damaged"):
        open_window(load, Home(tmp_path / "home"), "a")
    assert reader.read_text() == "error: model.onnx is damaged"


def test_a_browser_that_cannot_open_a_window_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: OnnxModel
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    for end, code in (("exit 3", "3"), ("kill -TRAP $$", "-5")):  # as where there is no sandbox
        monkeypatch.setenv(CHOSEN, f"sh -c 'echo Missing X server; {end}'")
        with pytest.raises(UserError, match=f"sh ended with code {code}: Missing X server"):
            open_window(lambda: window_app(Models(model)), Home(tmp_path), "a")


def test_what_a_program_without_a_terminal_says_is_in_a_file(tmp_path: Path) -> None:
    for said in ("error: one", "error: \udcff"):
        with open_log(tmp_path / "home") as log:
            print(said, file=log)
    assert (tmp_path / "home" / LOG).read_text() == "error: one\nerror: \\udcff\n"
    (tmp_path / "file").touch()
    with open_log(tmp_path / "file") as log:  # which is no folder
        print("nowhere", file=log)


@pytest.mark.parametrize(("harm", "word"), [(b"x", "damaged"), (None, "missing")])
def test_a_damaged_application_folder_is_told_in_one_line(
    tmp_path: Path, harm: bytes | None, word: str
) -> None:
    part = tmp_path / "_internal" / "numpy.so"
    part.parent.mkdir()
    part.write_bytes(b"sound")
    write_list(tmp_path)
    check_files(tmp_path)
    part.write_bytes(harm) if harm else part.unlink()
    with pytest.raises(UserError, match=f"numpy.so is {word}: unpack or copy the application"):
        check_files(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the menu of freedesktop.org")
def test_an_application_enters_itself_into_the_menu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # In a command first what quotes mean, then what any value does: a backslash is four.
    for folder, icon, program in (
        ("/opt/chat", "/opt/chat", "/opt/chat"),
        ('/opt/"my" $a', '/opt/"my" $a', r'/opt/\\"my\\" \\$a'),
        ("/opt/\\a\nb", r"/opt/\\a\nb", r"/opt/\\\\a\nb"),
    ):
        add_to_menu(Path(folder, "gptcore-chat"))
        entry = (tmp_path / "applications" / "gptcore-chat.desktop").read_text()
        assert f'Exec="{program}/gptcore-chat"\nIcon={icon}/icon.png\n' in entry
    with pytest.raises(UserError, match="has a % in its path"):
        add_to_menu(Path("/opt/50%/gptcore-chat"))
