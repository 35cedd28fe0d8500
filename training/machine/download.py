"""Download of a file, with retries, resumption, verification and an atomic result.

    >>> from pathlib import Path
    >>> download("https://host/train.jsonl", Path("data/train.jsonl"))     # doctest: +SKIP

Received bytes are kept in `train.jsonl.part` if the connection or the program ends. The next call
continues there if the server's ETag or date shows that the file is unchanged; otherwise it starts
again. If the SHA-256 is not known, the first download is trusted: its hash is written to
`train.jsonl.sha256`, and every later copy must match it. (If a server announces fewer bytes than
the file has, only the hash reveals it.)
"""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import requests

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, flush_to_disk, locked, write_whole
from training.machine.progress import progress

PAUSES = (1.0, 5.0, 25.0)  # seconds of pause before each further attempt
TIMEOUT = 60.0  # seconds without data after which an attempt fails
CHUNK = 1 << 16  # bytes received at a time, which are at most lost with a broken connection
BUSY = (408, 429)  # client errors worth another attempt
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Interrupted(Exception):
    """Raised if the server did not send the whole file; another attempt may succeed."""


def download(url: str, path: Path, sha256: str = "") -> None:
    """Download a file unless it exists. Raises UserError if that fails or the hash differs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(beside(path, ".lock")):  # another process may be fetching it
        if path.exists():
            return
        if not (sha256 or first_sha256(path)):
            note = beside(path, ".sha256").name
            print(
                f"{url}: its SHA-256 is not known beforehand, so this first download is trusted; "
                f"{note} keeps its hash, which later downloads must match",
                file=sys.stderr,
            )
        part = fetch(url, path)
        found = file_sha256(part)
        if found != (sha256 or first_sha256(path) or found):
            part.unlink()
            raise UserError(
                f"{url} has the SHA-256 {found}, but should have {sha256 or first_sha256(path)}: "
                f"{remedy(path, sha256)}"
            )
        if not sha256:
            write_whole(beside(path, ".sha256"), f"{found}\n")
        keep(part, path)


def keep(part: Path, path: Path) -> None:
    """Give a verified part its name."""
    flush_to_disk(part)
    part.replace(path)
    flush_to_disk(path.parent)
    beside(path, ".part.version").unlink(missing_ok=True)


def verify(path: Path, sha256: str = "") -> None:
    """Raise UserError unless the file has this hash or, without one, that of its first download."""
    expected = sha256 or first_sha256(path)
    if expected and (found := file_sha256(path)) != expected:
        raise UserError(
            f"{path} has the SHA-256 {found}, but should have {expected}: {remedy(path, sha256)}"
        )


def first_sha256(path: Path) -> str:
    """Return the hash of the first download, or "" if there was none."""
    note = beside(path, ".sha256")
    return note.read_text(encoding="utf-8").strip() if note.exists() else ""


def forget(path: Path) -> None:
    """Delete the hash of a first download that proved wrong, such as a login page."""
    with suppress(OSError):  # the folder may be read-only
        beside(path, ".sha256").unlink()


def remedy(path: Path, sha256: str) -> str:
    if sha256:
        return f"it is damaged or another file; delete {path}, or name another folder"
    return f"delete {path}; if the change is intended, delete {beside(path, '.sha256').name}, too"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def fetch(url: str, path: Path, headers: Mapping[str, str] = NO_HEADERS) -> Path:
    """Download into the `.part` file, with retries. Raises UserError if all attempts fail."""
    for pause in (*PAUSES, None):
        try:
            return receive(url, path, headers)
        except (requests.RequestException, Interrupted) as error:
            if pause is None:
                raise UserError(
                    f"{url} cannot be fetched: {reason(error, url)}; try again later, or put the "
                    f"file at {path} yourself"
                ) from None
            told = f"{url}: {reason(error, url)}; the next attempt is in {pause:g} s"
            print(told, file=sys.stderr, flush=True)
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def reason(error: Exception, url: str) -> str:
    """Return a short reason; that of a failed connection would be a long chain of causes."""
    if isinstance(error, requests.ConnectionError) and "Max retries" in str(error):
        return f"no connection to {urlsplit(url).netloc}"
    return " ".join(str(error).split())[:300]


def receive(url: str, path: Path, headers: Mapping[str, str] = NO_HEADERS) -> Path:
    """Request the missing bytes once; return the complete `.part` file.

    `headers` are sent too, such as a token's; another host, to which the server may lead on, gets
    no token.
    Raises Interrupted if bytes are still missing, and UserError if the server refuses.
    """
    part, version = beside(path, ".part"), beside(path, ".part.version")
    known = version.read_text(encoding="utf-8") if version.exists() and part.exists() else ""
    start = part.stat().st_size if known else 0
    # Without this, a server may compress, and lengths and ranges would not be the file's.
    headers = {**headers, "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": known}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status = f"{response.status_code} {response.reason}"
        if response.status_code == 416:  # the file has no bytes after the part
            if response.headers.get("Content-Range") == f"bytes */{start}":
                return part
            part.unlink()
            raise Interrupted(f"the server answers {status}")
        if response.status_code >= 500 or response.status_code in BUSY:
            raise Interrupted(f"the server answers {status}")
        if response.status_code not in (200, 206):
            raise UserError(
                f"{url} cannot be fetched: the server answers {status}; put the file at {path} "
                f"yourself, if you have it"
            )
        if response.status_code == 200:
            start = 0  # the file has changed, or the server does not support ranges
            part.unlink(missing_ok=True)  # so that it never mixes with the new version
            write_whole(version, version_of(response))
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.unlink()
            raise Interrupted("the server sends another range than requested")
        write(response, part, start)
    return part


def write(response: requests.Response, part: Path, start: int) -> None:
    """Append the response's body to the part. Raises Interrupted if it ends early."""
    promised = response.headers.get("Content-Length")
    total = start + int(promised) if promised else None
    bar = progress(None, part.stem, total, "B", initial=start, unit_scale=True)
    with open(part, "ab" if start else "wb") as file, bar:
        for chunk in response.iter_content(CHUNK):
            file.write(chunk)
            bar.update(len(chunk))
        n = file.tell()
    if total is not None and n != total:
        raise Interrupted(f"the server promised {total:,} bytes, but sent {n:,}")


def version_of(response: requests.Response) -> str:
    """Return a value for If-Range, which accepts no weak ETags (RFC 9110, section 13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
