"""Downloads from a real server that breaks off, lies, changes its file, or has none."""

import hashlib
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from conftest import SECONDS, until
from served import Quiet, served

import training.machine.download
from gptcore.checks import UserError
from training.machine.download import CHUNK, beside, download, verify

BODY = random.Random(0).randbytes(3 * CHUNK + 999)
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server:
    """One file at any path; `faults` says what is wrong with each of the next answers."""

    def __init__(self) -> None:
        self.body, self.tag, self.ranges = BODY, '"first"', True
        self.faults: list[str] = []
        self.asked: list[str] = []  # the Range of each request
        self.go_on = threading.Event()
        server = self

        class Handler(Quiet):
            def do_GET(self) -> None:
                server.asked.append(self.headers.get("Range", ""))
                fault = server.faults.pop(0) if server.faults else ""
                if fault.isdigit():
                    self.send_error(int(fault))
                    return
                body, start = server.body, 0
                if server.ranges and self.headers.get("If-Range", "none") == server.tag:
                    start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if start else 200)
                if start:
                    first = start - 1 if fault == "another range" else start
                    span = f"bytes {first}-{len(body) - 1}/{len(body)}"
                    self.send_header("Content-Range", span)
                n = len(body) - start + {"says more": 10, "says less": -10}.get(fault, 0)
                if fault != "no length":
                    self.send_header("Content-Length", str(n))
                if server.tag:
                    self.send_header("ETag", server.tag)
                self.end_headers()
                end = start + CHUNK + 50 if fault in ("breaks", "waits") else None
                self.wfile.write(body[start:end])
                if fault == "waits":
                    server.go_on.wait(2 * SECONDS)
                self.close_connection = True

        self.handler = Handler


AGAIN = "; the next attempt is in 0.01 s"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(training.machine.download, "PAUSES", (0.01, 0.01, 0.01))
    server = Server()
    with served(server.handler) as address:
        server.url = f"{address}/o/r/c/data.bin"
        yield server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "data.bin"


def refused(server: Server, path: Path, sha256: str = "") -> str:
    with pytest.raises(UserError) as error:
        download(server.url, path, sha256)
    assert not path.exists()
    return str(error.value)


def left(path: Path) -> set[str]:
    return {p.name.removeprefix("data.bin") for p in path.parent.iterdir()} - {".lock"}


def test_a_file_is_downloaded_once_and_its_first_hash_kept(server: Server, path: Path) -> None:
    download(server.url, path)
    assert path.read_bytes() == BODY and left(path) == {"", ".sha256"}
    assert beside(path, ".sha256").read_text().strip() == SHA256
    download(server.url, path)
    assert len(server.asked) == 1


def test_a_first_download_without_a_known_hash_is_said_to_be_trusted(
    server: Server, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download(server.url, path)
    said = capsys.readouterr().err
    assert f"{server.url}: its SHA-256 is not known beforehand" in said
    assert "this first download is trusted" in said and "data.bin.sha256" in said
    path.unlink()
    download(server.url, path)  # must be like the first
    other = path.with_name("other.bin")
    download(server.url, other, SHA256)
    assert "trusted" not in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["breaks", "says more", "503", "429", "no length"])
def test_what_fails_for_a_while_is_tried_again(
    server: Server, path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = [fault] * 3
    download(server.url, path, SHA256)
    assert path.read_bytes() == BODY and left(path) == {""}
    told = [line for line in capsys.readouterr().err.splitlines() if "attempt" in line]
    assert len(told) == (0 if fault == "no length" else 3)  # without one, it is complete
    assert all(line.startswith(f"{server.url}: ") and line.endswith(AGAIN) for line in told)


def test_a_broken_download_goes_on_where_it_was(server: Server, path: Path) -> None:
    server.faults = ["breaks", "503", "breaks"]
    download(server.url, path, SHA256)
    assert server.asked == ["", f"bytes={CHUNK}-", f"bytes={CHUNK}-", f"bytes={2 * CHUNK}-"]


def test_the_part_stays_for_the_next_run(server: Server, path: Path) -> None:
    server.faults = ["breaks", "503", "503", "503"]
    assert "503 Service Unavailable; try again later" in refused(server, path)
    assert left(path) == {".part", ".part.version"}
    download(server.url, path, SHA256)
    assert path.read_bytes() == BODY and server.asked[-1] == f"bytes={CHUNK}-"


def test_ctrl_c_keeps_the_part(server: Server, path: Path) -> None:
    server.faults = ["waits"]
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from training.machine.download import download\n"
        "download(sys.argv[1], Path(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, server.url, str(path)], stderr=PIPE)
    part = beside(path, ".part")
    until(lambda: part.exists() and part.stat().st_size == CHUNK)
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=SECONDS)[1]
    server.go_on.set()
    assert part.read_bytes() == BODY[:CHUNK]
    download(server.url, path, SHA256)
    assert server.asked == ["", f"bytes={CHUNK}-"] and path.read_bytes() == BODY


def test_a_whole_part_is_not_fetched_again(server: Server, path: Path) -> None:
    path.parent.mkdir()
    beside(path, ".part").write_bytes(BODY)
    beside(path, ".part.version").write_text(server.tag)
    download(server.url, path, SHA256)
    assert path.read_bytes() == BODY and server.asked == [f"bytes={len(BODY)}-"]


@pytest.mark.parametrize("change", ["content", "no ranges", "too long", "weak", "another range"])
def test_a_part_of_another_file_is_not_gone_on_with(
    server: Server, path: Path, change: str
) -> None:
    path.parent.mkdir()
    beside(path, ".part").write_bytes(b"x" * (len(BODY) + 1 if change == "too long" else CHUNK))
    beside(path, ".part.version").write_text("" if change == "weak" else '"first"')
    if change == "content":
        server.tag = '"second"'
    elif change == "weak":
        server.tag = 'W/"first"'
    server.ranges = change != "no ranges"
    server.faults = ["another range"] if change == "another range" else []
    download(server.url, path, SHA256)
    assert path.read_bytes() == BODY


def test_a_part_is_gone_before_the_version_of_another_file_stands_beside_it(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the first byte of the new file: its version must not vouch for the old part."""
    path.parent.mkdir()
    beside(path, ".part").write_bytes(b"x" * CHUNK)
    beside(path, ".part.version").write_text('"first"')
    server.tag = '"second"'

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed, pytest.raises(KeyboardInterrupt):
        changed.setattr(training.machine.download, "write", kill)
        download(server.url, path)
    download(server.url, path)
    assert path.read_bytes() == BODY


def test_a_server_without_versions_is_asked_for_the_whole(server: Server, path: Path) -> None:
    server.tag, server.faults = "", ["breaks", "breaks"]
    download(server.url, path, SHA256)
    assert path.read_bytes() == BODY and server.asked == ["", "", ""]


@pytest.mark.parametrize("status", ["404", "403", "410"])
def test_a_file_that_is_not_there_is_not_asked_for_again(
    server: Server, path: Path, status: str
) -> None:
    server.faults = [status]
    assert f"the server answers {status}" in (said := refused(server, path))
    assert f"put the file at {path} yourself" in said
    assert len(server.asked) == 1


def test_a_server_that_keeps_lying_about_the_length_is_named(server: Server, path: Path) -> None:
    server.faults = ["says more"] * 9
    assert server.url in refused(server, path)
    server.faults = ["says less"]
    beside(path, ".part").unlink()
    assert "has the SHA-256" in refused(server, path, SHA256)


def test_a_wrong_hash_is_refused_and_nothing_kept(server: Server, path: Path) -> None:
    server.body = b"something else"
    said = refused(server, path, SHA256)
    assert SHA256 in said and hashlib.sha256(server.body).hexdigest() in said
    assert ".part" not in left(path)


def test_a_second_download_must_be_like_the_first(server: Server, path: Path) -> None:
    download(server.url, path)
    path.unlink()
    server.body = b"something else"
    assert "if the change is intended, delete data.bin.sha256" in refused(server, path)
    beside(path, ".sha256").unlink()
    download(server.url, path)
    assert path.read_bytes() == b"something else"


def test_a_file_that_was_changed_on_the_disk_is_found(server: Server, path: Path) -> None:
    download(server.url, path)
    verify(path)
    path.write_bytes(BODY[:-1] + b"x")
    with pytest.raises(UserError, match="should have"):
        verify(path)
    beside(path, ".sha256").unlink()
    verify(path)  # nothing is known of it
    with pytest.raises(UserError, match="delete"):
        verify(path, SHA256)


def test_no_server_at_all_is_one_line(server: Server, path: Path) -> None:
    server.url = "http://127.0.0.1:9/data.bin"  # nobody listens there
    assert "cannot be fetched" in (said := refused(server, path)) and "\n" not in said
