"""A folder at a URL, a few of whose files are on the local disk at a time, each verified.

    >>> remote = RemoteFolder("s3://bucket/shards/1f0c", Path("runs/big/cache"))  # doctest: +SKIP
    >>> remote.hold(["train-00003.bin", "train-00001.bin"])              # doctest: +SKIP
    >>> path = remote.locate("train-00003.bin")                          # doctest: +SKIP

`hold` fetches in the background what will be needed and deletes what will not; `locate` waits.
Several processes may share the local folder: a lock file lets one of them fetch for all.
"""

import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, locked, read_sealed

PAUSES = (1.0, 5.0, 25.0)  # seconds before another try
TIMEOUT = 60.0  # seconds without a byte
MANIFEST = "manifest.json"
# A manifest comes from elsewhere: its names may not lead out of the local folder.
NAMES = re.compile(r"(train|val)-\d+\.(bin|starts\.npy)|tokenizer/tokenizer\.[a-z]+(\.json)?")
HELD = "train-*.bin"  # the large files, of which only some are kept


class RemoteFolder:
    """The files of url/manifest.json, kept in `local` while they are needed."""

    def __init__(self, url: str, local: Path):
        self.url, self.local = url.rstrip("/"), local
        self.filesystem, self.root = open_filesystem(self.url)
        self.sha256: dict[str, str] = {}
        self.held: list[str] = []
        self.sound: set[str] = set()  # seen by this process to have the right hash

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, whose hashes all other files must have."""
        manifest: dict[str, Any] = {}

        def check(path: Path) -> None:
            manifest.update(read_sealed(path))

        with self.lock(MANIFEST):
            self.fetch(MANIFEST, check)
        if not isinstance(manifest.get("sha256"), dict):
            raise UserError(f"{self.url}/{MANIFEST} holds no hashes: it is no shards'")
        for name in manifest["sha256"]:
            if not NAMES.fullmatch(name):
                raise UserError(f"{self.url}/{MANIFEST} names the file {name!r}: it is no shards'")
        self.sha256 = manifest["sha256"]
        return manifest

    def locate(self, name: str) -> Path:
        """The file on the local disk, fetched if need be."""
        path = self.local / name
        if name in self.sound and path.exists():
            return path

        def check(fetched: Path) -> None:
            if file_sha256(fetched) != self.sha256[name]:
                raise ValueError("it is not the file that the manifest describes")

        with self.lock(name):
            try:
                check(path)  # another process may have fetched it, or this run before a pause
            except (OSError, ValueError):
                self.fetch(name, check)
        self.sound.add(name)
        return path

    def hold(self, names: list[str]) -> None:
        """Fetch these files, in order, in the background; delete other large ones."""
        if names == self.held:
            return
        self.held = names
        for path in self.local.glob(HELD):
            if path.name not in names:
                # Locked, it is being fetched by a process that is ahead of this one.
                with suppress(TimeoutError), self.lock(path.name, timeout=0):
                    path.unlink(missing_ok=True)
        # A daemon, so that a program that is done does not wait for it.
        threading.Thread(target=self.fetch_all, args=(names,), daemon=True).start()

    def fetch_all(self, names: list[str]) -> None:
        for name in names:
            if names is self.held:  # the training may have gone on
                with suppress(UserError):  # raised where the file is needed, if it still fails
                    self.locate(name)

    def lock(self, name: str, timeout: float = -1) -> AbstractContextManager[None]:
        return locked(self.local / f"{name}.lock", timeout)

    def fetch(self, name: str, check: Callable[[Path], None]) -> None:
        """Download a file; it has its name only when `check` has found it sound."""
        path, part = self.local / name, self.local / f"{name}.part"
        for pause in (*PAUSES, None):
            try:
                self.filesystem.get_file(f"{self.root}/{name}", str(part))
                check(part)
                part.replace(path)
                return
            except Exception as error:  # every driver has errors of its own
                part.unlink(missing_ok=True)
                if pause is None or isinstance(error, FileNotFoundError):
                    is_missing = isinstance(error, FileNotFoundError)
                    reason = "it is not there" if is_missing else " ".join(str(error).split())
                    reason = reason or type(error).__name__
                    raise UserError(
                        f"{self.url}/{name} cannot be fetched: {reason[:300]}; mend it or the "
                        f"connection, then run again"
                    ) from None
                time.sleep(pause)


def open_filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it. UserError names a missing driver."""
    import fsspec

    options = {}
    if url.startswith(("http:", "https:")):
        import aiohttp

        # By default a download that takes five minutes breaks off.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT)
        options["client_kwargs"] = {"timeout": timeout, "trust_env": True}
    try:
        return fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url} cannot be opened: {error}") from None
