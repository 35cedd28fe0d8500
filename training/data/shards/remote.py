"""A folder at a URL; a few of its files at a time are on the local disk, each verified.

    >>> remote = RemoteFolder("s3://bucket/shards/1f0c", Path("runs/big/cache"))  # doctest: +SKIP
    >>> remote.hold(["train-00003.bin", "train-00001.bin"])              # doctest: +SKIP
    >>> path = remote.locate("train-00003.bin")                          # doctest: +SKIP

`hold` fetches the named files in the background and deletes others; `locate` waits for a file.
Several processes may share the local folder: a lock file lets one of them fetch for all.
"""

import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, locked, read_sealed
from training.formats.places import open_filesystem

PAUSES = (1.0, 5.0, 25.0)  # seconds of pause before each further attempt
MANIFEST = "manifest.json"
# The only allowed file names: a manifest is foreign data and must not name other local files.
NAMES = re.compile(
    r"(train|val)-\d+\.(bin|starts\.npy|unlearned\.npy)|tokenizer/tokenizer\.[a-z]+(\.json)?"
)
HELD = "train-*.bin"  # pattern of the large files, of which only some are kept


class RemoteFolder:
    """The files that url/manifest.json lists, kept in `local` while they are needed."""

    def __init__(self, url: str, local: Path):
        self.url, self.local = url.rstrip("/"), local
        self.filesystem, self.root = open_filesystem(self.url)
        self.sha256: dict[str, str] = {}
        self.held: list[str] = []
        self.sound: set[str] = set()  # files whose hash this process has verified

    def read_manifest(self) -> dict[str, Any]:
        """Fetch and return the manifest, which holds the sha256 of all other files.

        Raises UserError if it cannot be fetched or is not a manifest of token shards.
        """
        with self.lock(MANIFEST):
            self.fetch(MANIFEST, read_sealed)
            manifest = read_sealed(self.local / MANIFEST)
        if not isinstance(manifest.get("sha256"), dict):
            raise UserError(f"{self.url}/{MANIFEST} holds no hashes: name the URL of token shards")
        for name in manifest["sha256"]:
            if not NAMES.fullmatch(name):
                raise UserError(
                    f"{self.url}/{MANIFEST} lists {name!r}, which is not a file of token shards"
                )
        self.sha256 = manifest["sha256"]
        return manifest

    def locate(self, name: str) -> Path:
        """Return the path of a file on the local disk; fetch it first if it is not there.

        Raises UserError if it cannot be fetched, or has not the manifest's sha256.
        """
        path = self.local / name
        if name in self.sound and path.exists():
            return path

        def check(fetched: Path) -> None:
            if file_sha256(fetched) != self.sha256[name]:
                raise ValueError("its sha256 differs from the manifest's")

        with self.lock(name):
            try:
                check(path)  # another process, or this run before a pause, may have fetched it
            except (OSError, ValueError):
                self.fetch(name, check)
        self.sound.add(name)
        return path

    def hold(self, names: list[str]) -> None:
        """Fetch these files in the background, in order; delete all other large ones."""
        if names == self.held:
            return
        self.held = names
        for path in chain(self.local.glob(HELD), self.local.glob(f"{HELD}.part")):
            if (name := path.name.removesuffix(".part")) not in names:
                # If it is locked, a process that is ahead of this one is fetching it.
                with suppress(TimeoutError), self.lock(name, timeout=0):
                    path.unlink(missing_ok=True)
        # A daemon thread does not delay the end of the program.
        threading.Thread(target=self.fetch_all, args=(names,), daemon=True).start()

    def fetch_all(self, names: list[str]) -> None:
        for name in names:
            if names is self.held:  # a later call of `hold` replaces these names
                with suppress(UserError):  # `locate` raises it again when the file is needed
                    self.locate(name)

    def lock(self, name: str, timeout: float = -1) -> AbstractContextManager[None]:
        return locked(self.local / f"{name}.lock", timeout)

    def fetch(self, name: str, check: Callable[[Path], object]) -> None:
        """Download a file; it gets its final name only after `check` has accepted it.

        Raises UserError if all attempts fail.
        """
        path, part = self.local / name, self.local / f"{name}.part"
        for pause in (*PAUSES, None):
            try:
                self.filesystem.get_file(f"{self.root}/{name}", str(part))
                check(part)
                part.replace(path)
                return
            except Exception as error:  # each fsspec driver raises its own exceptions
                part.unlink(missing_ok=True)
                if pause is None or isinstance(error, FileNotFoundError):
                    is_missing = isinstance(error, FileNotFoundError)
                    reason = "no such file" if is_missing else " ".join(str(error).split())
                    reason = reason or type(error).__name__
                    raise UserError(
                        f"{self.url}/{name} cannot be fetched: {reason[:300]}; correct the file or "
                        f"the connection, then run again"
                    ) from None
                time.sleep(pause)
