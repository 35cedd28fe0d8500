"""Uploads to a server that answers as the Hub does, for what `huggingface_hub` really asks."""

import base64
import hashlib
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import hub_server
import huggingface_hub.constants
import pytest
from conftest import NANO, ROOT, TINY, Refused, contents

from export.__main__ import main
from export.ship.push import push
from gptcore.checks import UserError

REFUSALS = {"bad-token": 401, "read-token": 403, "broken": 500}


class Hub:
    """Keeps what arrives: requests, large objects by their hash, the files of each repository."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.created: dict[str, dict] = {}
        self.objects: dict[str, bytes] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.breaks: dict[str, int] = {}  # how many uploads of an object break off, by its hash
        self.http = hub_server.start(Handler, self)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


class Handler(hub_server.Handler):
    hub: Hub

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        path = self.path.split("?")[0]
        self.hub.requests.append((self.command, path))
        oid = path.removeprefix("/objects/")
        if self.hub.breaks.get(oid, 0):
            self.hub.breaks[oid] -= 1
            self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, content = self.found(path, oid, self.rfile.read(length))
        self.answer(status, json.dumps(content).encode(), Content_Type="application/json")

    do_POST = do_PUT = do_GET

    def found(self, path: str, oid: str, body: bytes) -> tuple[int, dict | list]:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token in REFUSALS and not path.endswith("validate-yaml"):
            return REFUSALS[token], {"error": "the\nserver's words"}
        if path == "/api/repos/create":
            return 200, self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if "/preupload/" in path:
            return 200, {"files": list(map(upload_mode, json.loads(body)["files"]))}
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {"objects": list(map(self.slot, json.loads(body)["objects"]))}
        if path.startswith("/objects/"):
            self.hub.objects[oid] = body
            return 200, {}
        if path.startswith(("/api/models/", "/api/spaces/")) and self.command == "GET":
            name = "/".join(path.split("/")[3:5])
            if path.endswith("/tree/main"):
                return 200, [*map(listed, self.hub.files.get(name, ()))]
            is_private = self.hub.created[name].get("visibility") == "private"
            return 200, {"id": name, "private": is_private}
        if "/commit/" in path:
            return 200, self.commit(path, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": path}

    def create(self, wanted: dict) -> dict:
        name = f"{wanted['organization'] or 'me'}/{wanted['name']}"
        self.hub.created.setdefault(name, wanted)  # one that exists stays as it is
        prefix = "spaces/" if wanted.get("type") == "space" else ""
        return {"url": f"{self.hub.url}/{prefix}{name}"}

    def slot(self, wanted: dict) -> dict:
        if wanted["oid"] in self.hub.objects:
            return {"oid": wanted["oid"], "size": wanted["size"]}
        upload = {"href": f"{self.hub.url}/objects/{wanted['oid']}"}
        return {"oid": wanted["oid"], "size": wanted["size"], "actions": {"upload": upload}}

    def commit(self, path: str, lines: list[dict]) -> dict:
        place = path.split("/commit/")[0].removeprefix("/api/").removeprefix("models/")
        repo = place.removeprefix("spaces/")
        files = self.hub.files.setdefault(repo, {})
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        oid = "0" * 40
        return {"commitUrl": f"{self.hub.url}/{place}/commit/{oid}", "commitOid": oid}


def listed(name: str) -> dict:
    return {"type": "file", "path": name, "size": 1, "oid": "0" * 40}


def upload_mode(file: dict) -> dict:
    """Binary files are large ones."""
    is_text = b"\0" not in base64.b64decode(file["sample"])
    mode = "regular" if is_text and file["size"] < 10_000_000 else "lfs"
    return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub that this process's `huggingface_hub` talks to, over LFS as any Hub understands it."""
    hub = Hub()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "good-token")
    yield hub
    hub.http.shutdown()


def test_the_command_uploads_every_byte_of_a_model_folder(hub: Hub) -> None:
    """In a process of its own, told by its environment alone."""
    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "good-token", "HF_HUB_DISABLE_XET": "1"}
    result = subprocess.run(
        [sys.executable, "-m", "export", "push", str(NANO), "me/nano"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == f"uploaded {NANO} to {hub.url}/me/nano"
    assert hub.files["me/nano"] == contents(NANO)
    graph = (NANO / "onnx" / "model.onnx").read_bytes()
    assert hub.objects[hashlib.sha256(graph).hexdigest()] == graph
    assert hub.created["me/nano"]["type"] == "model"
    assert "visibility" not in hub.created["me/nano"]


def test_a_space_and_its_sdk_are_known_by_the_readme(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "another-token")
    space = tmp_path / "space"
    assert main(["space", str(NANO), "--out", str(space)]) == 0
    written = contents(space)
    (space / "gptcore" / "__pycache__").mkdir()
    (space / "gptcore" / "__pycache__" / "chat.pyc").touch()
    assert main(["push", str(space), "me/chat", "--private"]) == 0
    assert hub.created["me/chat"]["type"] == "space"
    assert hub.created["me/chat"]["sdk"] == "gradio"
    assert hub.created["me/chat"]["visibility"] == "private"
    assert hub.files["me/chat"] == written


def test_a_repository_keeps_no_weights_of_an_earlier_push(hub: Hub, tmp_path: Path) -> None:
    """An old q4 would be another model than the rest; what a person added stays."""
    (tmp_path / "README.md").write_text("---\nsdk: static\n---\n")
    push(tmp_path, "me/site")
    others = {".gitattributes": b"lfs", "pictures/me.png": b"mine"}
    hub.files["me/site"] |= others | {"onnx/model_q4.onnx": b"old", "gptcore/old.py": b"old"}
    push(tmp_path, "me/site")
    assert hub.files["me/site"] == contents(tmp_path) | others
    commits = [path for _, path in hub.requests if "/commit/" in path]
    assert len(commits) == 2, "what goes and what comes are one commit"


def test_a_space_keeps_nothing_of_a_model_that_it_has_no_more(hub: Hub, tmp_path: Path) -> None:
    """The page takes a folder models/translate for a translator."""
    spaces = tmp_path / "first", tmp_path / "second"
    for space in spaces:
        assert main(["space", str(NANO), "--out", str(space)]) == 0
    shutil.copytree(TINY / "translator", spaces[0] / "models" / "translate")
    for space in spaces:
        push(space, "me/chat")
    assert hub.files["me/chat"] == contents(spaces[1])


def test_a_repository_can_be_given_another_model(hub: Hub, tmp_path: Path) -> None:
    """Files of the one before, which the new facts do not list, would make it unloadable."""
    push(NANO, "me/model")
    old = {"tokenizer.facts.json": b"{}", "source_tokenizer/tokenizer.tiktoken": b"old"}
    hub.files["me/model"] |= old
    push(NANO, "me/model")
    assert hub.files["me/model"] == contents(NANO)


@pytest.mark.parametrize("line", ["title: a: b", "- a list", "title: \xff"])
def test_a_readme_that_the_hub_could_not_read_is_named(
    hub: Hub, tmp_path: Path, refused: Refused, line: str
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"---\n{line}\n---\n", encoding="latin-1")
    said = refused(main, "push", tmp_path, "me/site")
    assert f"{readme} has no front matter that the Hub can read: correct it (" in said
    assert hub.requests == []


def test_nothing_private_goes_into_a_public_repository(hub: Hub, refused: Refused) -> None:
    push(NANO, "me/shown")
    first = dict(hub.files)
    said = refused(main, "push", NANO, "me/shown", "--private")
    assert "me/shown exists and is public" in said and "nothing was uploaded" in said
    assert hub.requests[-1] == ("GET", "/api/models/me/shown") and hub.files == first


def test_a_static_page_is_a_space_too_and_a_name_alone_is_mine(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nsdk: static\n---\n")
    (tmp_path / "index.html").write_text("<h1>Hello</h1>")
    assert push(tmp_path, "site") == f"{hub.url}/spaces/me/site"
    assert hub.created["me/site"]["sdk"] == "static"
    assert hub.files["me/site"] == contents(tmp_path)


@pytest.fixture
def graph(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hash of a large file; huggingface_hub does not wait before it tries again."""
    waits = SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr(huggingface_hub.utils._http, "time", waits)
    return hashlib.sha256((NANO / "onnx" / "model.onnx").read_bytes()).hexdigest()


def test_an_upload_that_breaks_off_goes_on(hub: Hub, graph: str) -> None:
    hub.breaks[graph] = 2
    push(NANO, "me/nano")
    assert hub.requests.count(("PUT", f"/objects/{graph}")) == 3
    assert hub.files["me/nano"] == contents(NANO)


def test_after_a_lost_connection_the_same_command_sends_what_is_missing(
    hub: Hub, graph: str
) -> None:
    hub.breaks[graph] = 1000
    with pytest.raises(UserError, match=f"cannot reach {hub.url} .*run the same command later"):
        push(NANO, "me/nano")
    assert "me/nano" not in hub.files, "a repository has all of a folder or nothing"
    arrived, hub.requests = set(hub.objects), []
    hub.breaks.clear()
    push(NANO, "me/nano")
    sent = [path.removeprefix("/objects/") for method, path in hub.requests if method == "PUT"]
    assert arrived and graph in sent and not arrived & set(sent)
    assert hub.files["me/nano"] == contents(NANO)


@pytest.mark.parametrize("inner", ["", "models/default"])
def test_a_changed_model_is_refused_before_any_request(
    hub: Hub, tmp_path: Path, refused: Refused, inner: str
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(NANO, folder / inner)
    if inner:
        (folder / "README.md").write_text("---\nsdk: gradio\n---\n")
    weights = folder / inner / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "model.safetensors is damaged or changed" in refused(main, "push", folder, "me/nano")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("bad-token", "the token is not valid"),
        ("read-token", "the token may not write there"),
        ("broken", "HTTP 500, the server's words"),
    ],
)
def test_a_refusal_is_one_line(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, refused: Refused, token: str, words: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    said = refused(main, "push", NANO, "me/nano")
    assert "the Hub refused me/nano" in said and words in said
    assert not hub.files


def test_no_token_is_said_before_any_request(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: Refused
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "hf auth login" in refused(main, "push", NANO, "me/nano")
    assert hub.requests == []


def test_a_token_is_asked_for_in_a_terminal_and_not_shown(hub: Hub, tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    kept = {key: value for key, value in os.environ.items() if key != "HF_TOKEN"}
    words = [sys.executable, "-m", "export", "push", str(NANO), "me/nano"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, words, kept | environment)
    said = b""
    while b"not shown: " not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"typed-token\n")
    with suppress(OSError):  # the end of a pseudo-terminal
        while more := os.read(terminal, 1000):
            said += more
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0 and b"uploaded" in said, said
    assert b"typed-token" not in said
    assert hub.files["me/nano"] == contents(NANO)


def test_no_token_is_an_argument() -> None:
    """Arguments are seen by everyone who lists the processes."""
    with pytest.raises(SystemExit):
        main(["push", str(NANO), "me/nano", "--token", "secret"])


@pytest.mark.parametrize("repo", ["me/na me", "a/b/c", "", "me/-nano", "me/nano.git"])
def test_a_bad_name_is_said_before_any_request(hub: Hub, refused: Refused, repo: str) -> None:
    assert f"repo={repo!r}" in refused(main, "push", NANO, repo)
    assert hub.requests == []


def test_no_network_is_one_line(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "cannot reach http://127.0.0.1:9" in refused(main, "push", NANO, "me/nano")


def test_a_wrong_folder_is_named(hub: Hub, tmp_path: Path, refused: Refused) -> None:
    assert "no folder at" in refused(main, "push", tmp_path / "none", "me/nano")
    assert "is not a model folder" in refused(main, "push", tmp_path, "me/nano")
    assert hub.requests == []
