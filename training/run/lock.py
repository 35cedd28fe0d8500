"""Takes a folder for one training: it must be writable, hold no other run, and be in no other use.

>>> with locked_run(Path("runs/mine"), is_first=True):               # doctest: +SKIP
...     train()
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from gptcore.checks import UserError
from gptcore.system.files import LOCK, locked, put_back
from training.run.directory import CONFIG, RECORDS, Run, begun


def check_writable(path: Path) -> None:
    """Raise UserError if nothing can be written to the folder, before hours of work."""
    nearest = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise UserError(f"--out {path}: {nearest} is a file: name a folder")
    try:
        with TemporaryDirectory(dir=nearest):
            pass
    except OSError as error:
        reason = f"nothing can be written to {nearest} ({error.strerror})"
        raise UserError(f"--out {path}: {reason}: choose another folder") from None


@contextmanager
def locked_run(path: Path, is_first: bool) -> Iterator[None]:
    """Lock a run directory for this command; only the first process takes the lock.

    Raises UserError if another command trains into the folder, or if it is not writable. A new
    folder that stays empty is removed again.
    """
    if not is_first:
        yield
        return
    check_writable(path)
    lock = path / LOCK
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        with ExitStack() as held:
            try:
                held.enter_context(locked(lock, timeout=0))
            except TimeoutError:
                raise UserError(
                    f"{path} is in use: another command trains into it; wait for its end, or "
                    f"choose another --out"
                ) from None
            put_back(path / "checkpoints")
            yield
    finally:
        if missing and list(path.glob("*")) == [lock]:
            lock.unlink()
            with suppress(OSError):  # a parent may hold other files by now
                for folder in missing:
                    folder.rmdir()


def check_free(path: Path) -> None:
    """Raise UserError if the folder holds a run or files that a run would replace, or is read-only.

    What a run without a checkpoint left may be replaced.
    """
    check_writable(path)
    if begun(path):
        raise UserError(f"{path} holds a run already: add --resume, or choose another --out")
    found = [name for name in ("gptcore.json", CONFIG, *RECORDS) if (path / name).exists()]
    try:
        if found:
            Run.load(path)
    except UserError:
        raise UserError(f"{path} holds {found[0]}, but no run: choose another --out") from None
