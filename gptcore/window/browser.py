"""A window by an installed browser of Chromium's kind, in its application mode, which has no tabs.

The browser has a folder of its own for the chats, and remembers there where its window was. Its
process ends with its last window.

>>> Browser(find_browser(), "http://127.0.0.1:7861", folder).run()    # doctest: +SKIP
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gptcore.checks import UserError, shorten

CHOSEN = "GPTCORE_BROWSER"  # a command line, in place of the browsers below
NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("microsoft-edge", "microsoft-edge-stable", "brave-browser", "vivaldi"),
)
ON_MACS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
ON_WINDOWS = (r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe")
QUIET = (  # nothing is asked of a person, and nothing of any other host
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=MediaRouter,Translate",
    "--password-store=basic",
)
SIZE = "1200,860"
LOCK = "SingletonLock"  # Chromium's own name for it
PAUSE = 0.5  # seconds
# Exit codes of a browser that was closed, or ended by the system or a person; one that cannot open
# a window may end by another signal ("No usable sandbox!" does).
ENDED = (0, *(-getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)))


def find_browser() -> list[str]:
    """Return the command of a browser; raises UserError if there is none."""
    if chosen := os.environ.get(CHOSEN):
        words = [chosen] if Path(chosen).is_file() else words_of(chosen)
        if not words:
            raise UserError(f"{CHOSEN} is blank: name a browser in it, or unset it")
        return words
    for path in places():
        if Path(path).is_file():
            return [path]
    raise UserError(
        "there is neither pywebview nor a browser for a window: install Chromium, Chrome or Edge, "
        f"name one in {CHOSEN}, or serve the page to any browser: gptcore, without --window"
    )


def words_of(line: str) -> list[str]:
    """Return the words of a command line; on Windows a backslash is a part of a path."""
    try:
        if sys.platform == "win32":
            return [word.replace('"', "") for word in shlex.split(line, posix=False)]
        return shlex.split(line)
    except ValueError:
        raise UserError(f"{CHOSEN} ({line}): a quotation mark is left open: close it") from None


def places() -> Iterator[str]:
    """Yield where a browser may be."""
    yield from filter(None, map(shutil.which, NAMES))
    if sys.platform == "darwin":
        for name in ON_MACS:
            yield f"/Applications/{name}.app/Contents/MacOS/{name}"
    for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
        if folder := os.environ.get(variable):
            yield from (f"{folder}\\{path}" for path in ON_WINDOWS)


class Browser:
    """The window: a process, which begins at once, and waits for the page to be served."""

    def __init__(self, command: list[str], url: str, folder: Path):
        size = [] if folder.is_dir() else [f"--window-size={SIZE}"]  # later it remembers its own
        folder.mkdir(parents=True, exist_ok=True)
        self.words = [*command, f"--app={url}", f"--user-data-dir={folder}", *QUIET, *size]
        self.folder, self.said, self.is_closed = folder, folder / "browser.log", False
        try:
            with open(self.said, "wb") as log:
                self.process = subprocess.Popen(self.words, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise UserError(
                f"{command[0]} cannot be started ({error.strerror}): name another browser in "
                f"{CHOSEN}"
            ) from None

    def show(self) -> None:
        """Open the page once more: the running browser takes it over from the new process."""
        subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def run(self) -> None:
        """Wait until the window is closed. Raises UserError if it could not be opened."""
        try:
            code = self.process.wait()
            # The browser of a program that was killed may still be open, and then has the window.
            while code == 0 and not self.is_closed and is_open(self.folder):
                time.sleep(PAUSE)
        except KeyboardInterrupt:
            self.close()
            raise
        if code not in ENDED and not self.is_closed:
            lines = self.said.read_text("utf-8", "replace").splitlines() or ["it said nothing"]
            last = re.sub(r"^\[.*?\] ", "", lines[-1])  # without the time and place of a log
            raise UserError(f"{self.words[0]} ended with code {code}: {shorten(last, 200)}")

    def close(self) -> None:
        self.is_closed = True
        self.process.terminate()
        self.process.wait()


def is_open(folder: Path) -> bool:
    """Return whether a browser of Chromium's kind has its folder open.

    A link in it names the browser's process, as HOST-NUMBER; on Windows a file is there as long.
    """
    if sys.platform == "win32":
        return (folder / "lockfile").exists()
    try:
        os.kill(int((folder / LOCK).readlink().name.rpartition("-")[2]), 0)
    except (OSError, ValueError, OverflowError):  # no browser, or one that has died
        return False
    return True
