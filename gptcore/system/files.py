"""Files that are complete or absent: hashes, seals, locks, atomic replacement.

>>> with new_folder(Path("models/mine")) as folder:                  # doctest: +SKIP
...     (folder / "a.txt").write_text("complete before it has its name")
>>> unseal(sealed({"steps": 3}))
{'steps': 3}
"""

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from gptcore.checks import UserError

SEAL = "seal"
FILES = "files.json"  # lists the sha256 of what a folder was written with
LFS_POINTER = b"version https://git-lfs"
LEFT = re.compile(r"\.\d+\.tmp$")  # the end of the name of what a killed `new_file` left
LOCK = "lock"  # in a run directory, held by the command that trains into it
CHECKOUT = Path(__file__).parents[2]  # where training/ and export/ are, if they are here


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is flushed and renamed to `path` if the block succeeds.

    Only then is an existing folder replaced, or that to which the link `path` leads. After an error
    nothing is left behind. Raises UserError if another process is writing the same folder.
    """
    path = path.resolve()
    # Hidden, so that no folder of a person's, such as a backup NAME.old, is taken for this one.
    old = path.with_name(f".{path.name}.old")
    with work_folder(path) as temporary:
        if old.exists() and not path.exists():  # a process ended between the two renames below
            old.rename(path)
        yield temporary
        for item in [*temporary.rglob("*"), temporary]:
            flush_to_disk(item)
        path.parent.mkdir(parents=True, exist_ok=True)
        exchange(temporary, path, old)
        flush_to_disk(path.parent)


@contextmanager
def work_folder(out: Path, end: str = "tmp") -> Iterator[Path]:
    """Yield an empty hidden folder beside `out`, to make that in; at the end it is deleted.

    The system's own place for such may hold too little. Raises UserError if another process has it.
    """
    parent = next(folder for folder in out.resolve().parents if folder.is_dir())
    folder = parent / f".{out.name}.{end}"
    with locked_folder(folder):
        made = folder.stat()
        try:
            yield folder
        finally:
            # Once this one is renamed, another process may begin one of the same name.
            if folder.exists() and os.path.samestat(folder.stat(), made):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make an empty folder, and hold a lock on it as long as it is written.

    The operating system releases the lock when a process dies. Windows has no locks of folders, and
    refuses to delete files that are being written.
    """
    if sys.platform == "win32":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield
        return
    descriptor = own_empty(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def own_empty(folder: Path) -> int:
    """Make an empty folder, and return the descriptor that holds a lock on it.

    Another process may make, delete or rename it between any two steps here. So it is ours only if
    the name still leads to what is locked, and what a process that died has left is deleted under
    that lock, too. Raises UserError if another process has it.
    """
    import fcntl

    while True:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
        with suppress(FileNotFoundError), ExitStack() as opened:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{folder} is being written by another process: wait for it"
                ) from None
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                if not any(folder.iterdir()):
                    opened.pop_all()
                    return descriptor
                shutil.rmtree(folder)


def exchange(new: Path, path: Path, old: Path) -> None:
    """Rename `new` to `path`; what is there is deleted after that, or stays if it fails."""
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    try:
        new.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def put_back(folder: Path) -> None:
    """Rename back what `exchange` had set aside in a folder when its process ended."""
    for old in folder.glob(".*.old"):
        path = old.with_name(old.name[1:].removesuffix(".old"))
        if not path.exists():
            old.rename(path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file is flushed and renamed to `path` if the block succeeds.

    Readers see the old file or the new one, never a part. After an error the old one is left. Two
    that write the same file at once do not disturb each other: the later one's stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The system gives each thread a number that no other one has, of any process. Hidden, so that
    # nobody who lists a folder meanwhile takes it for a whole file.
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with new_file(path) as temporary:  # half a surrogate pair, which is no text, is escaped
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def check_links(folder: Path) -> None:
    """Raise UserError if a link in the folder leads out of it: what it leads to could be secret.

    Hugging Face's cache links a model's files to its own folder of blobs, which is fine.
    """
    homes = [folder.resolve()]
    if homes[0].parent.name == "snapshots":
        homes.append(homes[0].parents[1] / "blobs")
    for path in folder.rglob("*"):
        if path.is_symlink() and not any(path.resolve().is_relative_to(home) for home in homes):
            raise UserError(f"{path} is a link that leads out of {folder}: copy the file itself")


def shown(folder: Path) -> str:
    """Return a folder as a command names it from here, without telling strangers where that is."""
    here, folder = Path.cwd(), folder.resolve()
    return folder.relative_to(here).as_posix() if folder.is_relative_to(here) else folder.name


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder and of its folders by their names in it: `onnx/model.onnx`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differs_in_line_ends(path: Path, sha256: str) -> bool:
    """Return whether a file has this hash with other line ends, which git changes on Windows."""
    lines = path.read_bytes().replace(b"\r\n", b"\n")
    ways = lines, lines.replace(b"\n", b"\r\n")
    return sha256 in (hashlib.sha256(way).hexdigest() for way in ways)


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is what a clone without Git LFS has in place of a large one."""
    with open(path, "rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the sha256 of files of a folder, by their places in it."""
    return {name: file_sha256(folder / name) for name in sorted(names)}


def flush_to_disk(path: Path) -> None:
    """Flush a file or folder to the disk; a folder is left out where that cannot be done."""
    if path.is_dir() and os.name == "nt":
        return
    # Windows alone asks for the right to write; a copied file may be read-only.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # of a folder on some network drives
        if not (path.is_dir() and error.errno == errno.EINVAL):
            raise
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises UserError if it is not JSON or nested too deeply, OSError if it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is not valid JSON") from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds; raises as read_json does, or UserError."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it is not a JSON object")
    return content


def remembered(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds; a missing or damaged one counts as empty."""
    with suppress(OSError, UserError):
        return read_object(path)
    return {}


def sealed(content: dict[str, Any]) -> str:
    """Return JSON text whose last entry, "seal", is the sha256 of the entries before it."""
    seal = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps(content | {SEAL: seal}, indent=2)


def unseal(text: str) -> dict[str, Any]:
    """Return the content of a text that `sealed` wrote; raises ValueError if a byte differs."""
    try:
        content = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise ValueError("it is not an object of names and values") from None
    content.pop(SEAL, None)
    if text != sealed(content):
        raise ValueError("its seal does not match its content")
    return content


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a sealed file.

    Raises UserError if the file is damaged, OSError if it cannot be read.
    """
    try:
        return unseal(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError as error:
        raise UserError(f"{path} is damaged or was changed: {error}") from None


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Hold a lock file for the duration of the block; only one process at a time can.

    Raises TimeoutError if it is not free after `timeout` seconds; -1 waits without limit. The
    operating system releases the lock when a process dies. The empty lock file stays.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, timeout):
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock file."""
    try:
        with locked(path, timeout=0) if path.exists() else nullcontext():
            return False
    except TimeoutError:
        return True


def cache_folder() -> Path:
    """Return the folder for this user's downloads: $XDG_CACHE_HOME/gptcore or ~/.cache/gptcore."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gptcore"


def data_folder() -> Path:
    """Return the folder for what this user keeps: $XDG_DATA_HOME/gptcore or ~/.local/share/gptcore.

    On Windows it is in %LOCALAPPDATA%.
    """
    place = os.environ.get("XDG_DATA_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(place or Path.home() / ".local" / "share") / "gptcore"


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def list_checkpoints(folder: Path) -> list[Path]:
    """Return all folders in a run's `checkpoints/`, newest first, damaged ones included."""
    found = [p for p in folder.glob("step-*") if p.name.removeprefix("step-").isdigit()]
    return sorted(found, key=step_of, reverse=True)
