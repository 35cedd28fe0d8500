"""One file from a URL to the disk: resumed, tried again, verified, and whole or not there.

    >>> from pathlib import Path
    >>> download("https://host/train.jsonl", Path("data/train.jsonl"))     # doctest: +SKIP

What has come is in `train.jsonl.part`, and stays there when the connection or the program ends;
the next call goes on behind it if the server says that the file is still the same (an ETag or
a date), and starts anew if not. A file whose SHA-256 is not known beforehand is trusted at its
first download, and no longer: its hash is written to `train.jsonl.sha256`, which every later
copy must have. (A server that promises fewer bytes than there are is caught by the hash alone.)
"""

import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import requests

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, flush_to_disk, locked, write_whole
from training.machine.progress import progress

PAUSES = (1.0, 5.0, 25.0)  # seconds before another try
TIMEOUT = 60.0  # seconds without a byte
CHUNK = 1 << 16  # what at most is lost when the connection breaks
BUSY = (408, 429)  # what the server may grant later; other 4xx it will not


class Interrupted(Exception):
    """The server did not give the whole file this time."""


def download(url: str, path: Path, sha256: str = "") -> None:
    """Fetch the file unless it is there. UserError if it cannot be had or has another hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(beside(path, ".lock")):  # another process may be fetching it
        if path.exists():
            return
        if not (sha256 or first_sha256(path)):
            note = beside(path, ".sha256").name
            print(
                f"{url}: its SHA-256 is not known beforehand, so this first download is trusted; "
                f"what comes is noted in {note}, and must be the same from then on",
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
        flush_to_disk(part)
        part.replace(path)
        flush_to_disk(path.parent)
        beside(path, ".part.version").unlink(missing_ok=True)


def verify(path: Path, sha256: str = "") -> None:
    """UserError unless the file has this hash, or that of its first download if one is known."""
    expected = sha256 or first_sha256(path)
    if expected and (found := file_sha256(path)) != expected:
        raise UserError(
            f"{path} has the SHA-256 {found}, but should have {expected}: {remedy(path, sha256)}"
        )


def first_sha256(path: Path) -> str:
    """The hash of the first download, "" where there was none."""
    note = beside(path, ".sha256")
    return note.read_text(encoding="utf-8").strip() if note.exists() else ""


def forget(path: Path) -> None:
    """A first download was not the file that was meant, but a login page, say: the hash goes, so
    that the next download is the first."""
    with suppress(OSError):  # in a folder that is only read
        beside(path, ".sha256").unlink()


def remedy(path: Path, sha256: str) -> str:
    if sha256:
        return f"it is damaged or not the file that is meant; delete {path}, or name another folder"
    return f"delete {path}, and {beside(path, '.sha256').name} too if the change is meant"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def fetch(url: str, path: Path) -> Path:
    """The `.part` file with all that the server has."""
    for pause in (*PAUSES, None):
        try:
            return receive(url, path)
        except (requests.RequestException, Interrupted) as error:
            if pause is None:
                raise UserError(
                    f"{url} cannot be fetched: {reason(error, url)}; run again when the connection "
                    f"is better, or put the file at {path} yourself"
                ) from None
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def reason(error: Exception, url: str) -> str:
    """In a few words; what could not even be connected to has a long chain of causes."""
    if isinstance(error, requests.ConnectionError) and "Max retries" in str(error):
        return f"no connection to {urlsplit(url).netloc}"
    return " ".join(str(error).split())[:300]


def receive(url: str, path: Path) -> Path:
    """One request, for what is missing. Interrupted if something is missing after it, too."""
    part, version = beside(path, ".part"), beside(path, ".part.version")
    known = version.read_text(encoding="utf-8") if version.exists() and part.exists() else ""
    start = part.stat().st_size if known else 0
    # Compressed on the way, neither lengths nor ranges would be the file's.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": known}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status = f"{response.status_code} {response.reason}"
        if response.status_code == 416:  # nothing is behind the part
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
            start = 0  # the file has changed, or the server knows no ranges
            part.unlink(missing_ok=True)  # before it could pass for the new version's
            write_whole(version, version_of(response))
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.unlink()
            raise Interrupted("the server sends another range than was asked for")
        write(response, part, start)
    return part


def write(response: requests.Response, part: Path, start: int) -> None:
    """The body to the end of what is there."""
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
    """For If-Range, which accepts no weak ETags (RFC 9110, section 13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
