"""Files that are either whole or not there: hashes, seals, locks, atomic replacement.

>>> with new_folder(Path("models/mine")) as folder:                  # doctest: +SKIP
...     (folder / "a.txt").write_text("complete before it has its name")
>>> unseal(sealed({"steps": 3}))
{'steps': 3}
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gptcore.checks import UserError

SEAL = "seal"


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path`, flushed to the disk, if the block succeeds.

    A folder that was there before is replaced only then. After an error nothing is left.
    """
    temporary = path.with_name(path.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for item in [*temporary.rglob("*"), temporary]:
            flush_to_disk(item)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
        flush_to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is the old one or the new one at every moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        flush_to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    """fsync a file or folder (Windows cannot open folders, and needs no fsync for them)."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """What a JSON file holds. UserError if it is no JSON or nested too deeply, else OSError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is no JSON") from None


def sealed(content: dict[str, Any]) -> str:
    """JSON text whose last entry, "seal", is the sha256 of the entries before it."""
    seal = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps(content | {SEAL: seal}, indent=2)


def unseal(text: str) -> dict[str, Any]:
    """The content of a sealed text. ValueError unless `sealed` wrote it, to the byte."""
    try:
        content = dict(json.loads(text))
    except (TypeError, RecursionError):
        raise ValueError("it holds no object of names and values") from None
    content.pop(SEAL, None)
    if text != sealed(content):
        raise ValueError("its seal is not that of its content")
    return content


def read_sealed(path: Path) -> dict[str, Any]:
    """A sealed file, or one of the first format, which had neither number nor seal.

    UserError names a file that is damaged; OSError: it cannot be read.
    """
    values = read_json(path)
    if isinstance(values, dict) and not {"format", SEAL} & set(values):
        return values
    try:
        return unseal(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged or was changed: {error}") from None


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Enter when no other process is in a block with the same lock file.

    TimeoutError after `timeout` seconds; -1 waits for ever. The system releases the lock when
    a process dies. The lock file is empty and stays.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, timeout):
        yield


def cache_folder() -> Path:
    """Where this user's downloads are kept: $XDG_CACHE_HOME/gptcore or ~/.cache/gptcore."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gptcore"


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's `checkpoints/`, newest first, whether sound or not."""
    found = [p for p in folder.glob("step-*") if p.name.removeprefix("step-").isdigit()]
    return sorted(found, key=step_of, reverse=True)
