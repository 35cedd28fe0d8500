"""Texts at addresses: a web server, an S3-compatible store, and patterns in both."""

import io
import os
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import BinaryIO

import boto3
import pytest
from moto.server import ThreadedMotoServer
from served import Quiet, served

from gptcore.checks import UserError
from training.data.corpus import read_documents
from training.formats import places
from training.formats.places import TIMEOUT, find_files, open_filesystem
from training.jobs.options import read_text

TEXT = "It rained all night, and in the morning the harbour was full of boats. " * 20


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder that a web server shows, its address, and the methods that it was asked by.

    An address below /signed/ leads to the file by another one, a new one each time.
    """
    folder, asked = tmp_path / "web", []
    folder.mkdir()

    class Handler(Quiet):
        def log_request(self, *_: object) -> None:
            asked.append(self.command)

        def send_head(self) -> io.BytesIO | BinaryIO | None:
            if not self.path.startswith("/signed/"):
                return super().send_head()
            self.send_response(302)
            path = self.path.removeprefix("/signed")
            self.send_header("Location", f"{path}?signature={len(asked)}")
            self.end_headers()
            return None

    with served(partial(Handler, directory=folder)) as url:
        yield folder, url, asked


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator["boto3.client"]:
    """An S3-compatible store with the bucket "texts", which s3:// means."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"])
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="texts")
    yield client
    server.stop()


def documents(*addresses: str) -> list[object]:
    return list(read_documents(find_files(addresses)))


@pytest.mark.parametrize("path", ["book.txt", "signed/book.txt?download=true"])
def test_a_web_server(web: tuple[Path, str, list[str]], path: str) -> None:
    folder, url, asked = web
    address = f"{url}/{path}"
    (folder / "book.txt").write_text(TEXT)
    assert documents(address)
    assert find_files([address])[0].own_name == "book.txt"
    n_fetched = asked.count("GET")
    first = documents(address)
    assert asked.count("GET") == n_fetched, "an unchanged file is not fetched again"
    (folder / "book.txt").write_text(TEXT.replace("boats", "ships") + "More.")
    assert documents(address) != first


def test_a_training_reads_the_files_that_were_looked_at(web: tuple[Path, str, list[str]]) -> None:
    folder, url, asked = web
    (folder / "book.txt").write_text(TEXT)
    assert documents(f"{url}/book.txt")
    n_asked = len(asked)
    text = read_text(Namespace(text=[f"{url}/book.txt"], me=None, columns=None), 1, tells=False)
    assert text.source == "book.txt" and list(text.corpus())
    assert len(asked) == n_asked + 1, "whether the file is still the one in the cache"


def test_two_that_want_a_file_at_the_same_time_fetch_it_once(
    web: tuple[Path, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the processes of a training do, which all begin at once."""
    folder, url, asked = web
    (folder / "book.txt").write_text(TEXT)
    both_ask, version = Barrier(2), places.version_of

    def version_of(system: object, path: str) -> str:
        both_ask.wait(timeout=60)
        return version(system, path)

    monkeypatch.setattr(places, "version_of", version_of)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(documents, [f"{url}/book.txt"] * 2))
    assert found[0] == found[1] and asked.count("GET") == 1


def test_what_a_killed_command_fetched_in_part_is_deleted(
    web: tuple[Path, str, list[str]], own_cache: Path
) -> None:
    folder, url, _ = web
    (folder / "book.txt").write_text(TEXT)
    whole = documents(f"{url}/book.txt")
    (fetched,) = (path for path in own_cache.rglob("*") if path.is_file() and not path.suffix)
    fetched.rename(fetched.with_name(f".{fetched.name}.12.tmp"))
    assert documents(f"{url}/book.txt") == whole
    assert fetched.exists() and not [*own_cache.rglob("*.tmp")]


def test_what_no_web_server_has(web: tuple[Path, str, list[str]], own_cache: Path) -> None:
    with pytest.raises(UserError, match=r"none\.txt cannot be read: FileNotFoundError"):
        find_files([f"{web[1]}/none.txt"])
    with pytest.raises(UserError, match="cannot be read"):
        find_files(["http://127.0.0.1:9/book.txt"])  # nobody listens there
    with pytest.raises(UserError, match="ftpx"):
        find_files(["ftpx://host/book.txt"])
    assert not [path for path in own_cache.rglob("*") if path.is_file()]


def test_a_slow_download_has_all_the_time_it_needs_while_data_arrives() -> None:
    system, path = open_filesystem("http://127.0.0.1:9/book.txt")
    timeout = system.client_kwargs["timeout"]
    assert path == "http://127.0.0.1:9/book.txt"
    assert timeout.total is None and timeout.sock_read == TIMEOUT


def test_a_store_of_objects(store: "boto3.client") -> None:
    for name in ("a.txt", "b.txt", "c.csv", "deeper/d.txt"):
        store.put_object(Bucket="texts", Key=f"in/{name}", Body=f"{name}: {TEXT}".encode())
    store.put_object(Bucket="texts", Key="in/e.png", Body=b"\x89PNG\r\n\x1a\n\0")
    names = {
        place: [file.own_name for file in find_files([place])]
        for place in ("s3://texts/in/a.txt", "s3://texts/in", "s3://texts/in/*.txt")
    }
    assert names == {
        "s3://texts/in/a.txt": ["a.txt"],
        "s3://texts/in": ["a.txt", "b.txt", "c.csv", "d.txt", "e.png"],
        "s3://texts/in/*.txt": ["a.txt", "b.txt"],
    }
    assert str(documents("s3://texts/in/a.txt")[0]).startswith("a.txt: It rained")
    assert documents("s3://texts/in"), "what is no text in a folder is left out"
    with pytest.raises(UserError, match="it is a PNG picture: leave it out"):
        documents("s3://texts/in/e.png")
    with pytest.raises(UserError, match=r"s3://texts/none\.txt"):
        find_files(["s3://texts/none.txt"])
    with pytest.raises(UserError, match="names no file: correct the address"):
        find_files(["s3://texts/none-*.txt"])
