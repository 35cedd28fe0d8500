"""The window's program: `gptcore --window`, and the application that `export desktop` writes.

An application folder has one model, in the place of the model that ships.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gptcore import __version__
from gptcore.bundle import default_model, read_facts
from gptcore.checks import UserError
from gptcore.page.load import load_page
from gptcore.system.command_line import guard
from gptcore.system.files import FILES, data_folder, file_sha256, read_object, write_whole
from gptcore.system.network import allow_connections
from gptcore.window.home import Home
from gptcore.window.open import open_window

if TYPE_CHECKING:
    from starlette.applications import Starlette

MODEL = Path("gptcore") / "models" / "default"  # as in an installed package
ICON = "icon.png"  # the picture of an application folder
LOG = "log.txt"  # in the folder of what the window keeps
ENTRY = """[Desktop Entry]
Type=Application
Name={name}
Comment=Talk with a language model on this machine
Exec={program}
Icon={icon}
Terminal=false
Categories=Utility;
"""


def show_models(
    options: argparse.Namespace,
    trains: bool = False,
    name: str = "window",
    check: Callable[[], None] = lambda: None,
) -> int:
    """Show the models of the options in a window; return the exit code. Raises UserError.

    `trains`: whether Train is offered. `name`: of the program, whose windows share what is kept.
    `check` is called before anything large is loaded.
    """
    for folder in filter(None, (options.model, options.translate)):
        read_facts(folder)
    allow_connections()
    home = Home(data_folder() / name)

    def load() -> "Starlette":
        check()
        models, translator, bench = load_page(options, trains)
        from gptcore.window.server import window_app

        return window_app(models, translator, bench)

    return open_window(load, home, title=read_facts(options.model).name)


def main() -> int:
    """Run an application folder: its own model, and those that somebody put beside it."""
    own = Path(sys.executable)
    forget_pyinstaller()
    if sys.stdout is None:  # a program without a terminal on Windows
        sys.stdout = sys.stderr = open_log(data_folder() / own.stem)
    parser = argparse.ArgumentParser(prog=own.stem, description="Talk with a model in a window.")
    parser.add_argument("--version", action="version", version=f"gptcore {__version__}")
    parser.add_argument("--install", action="store_true", help="add it to the desktop's menu")
    install = parser.parse_args().install
    model = default_model()
    options = argparse.Namespace(
        model=model, models=model.parent, variant=None, translate=None, memory=4
    )

    def run() -> int:
        if install:
            return add_to_menu(own)
        return show_models(options, name=own.stem, check=lambda: check_files(own.parent))

    return guard(run, "requirements.txt")


def forget_pyinstaller() -> None:
    """Undo what PyInstaller set for this process, so that the browser finds its own libraries."""
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before


def open_log(folder: Path) -> TextIO:
    """Open the log to which a program without a terminal appends what it prints.

    If the log cannot be written, the output is dropped.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / LOG, "a", 1, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")


def check_files(folder: Path) -> None:
    """Raise UserError unless every file of the folder is as it was written."""
    for name, expected in read_object(folder / FILES).items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != expected:
            state = "damaged" if path.exists() else "missing"
            raise UserError(f"{path} is {state}: unpack or copy the application folder again")


def add_to_menu(own: Path) -> int:
    """Write the entry of the menu for this user (freedesktop.org, Desktop Entry Specification)."""
    if sys.platform != "linux":
        raise UserError("--install is for Linux: elsewhere make a shortcut to the program")
    entry = data_folder().parent / "applications" / f"{own.stem}.desktop"
    if "%" in str(own):  # escaped, it is not found by all desktops
        raise UserError(f"{own} has a % in its path, which no menu can start: move the folder")
    name, icon = read_facts(default_model()).name, own.with_name(ICON)
    program = quoted(str(own))
    values = {"name": name, "program": program, "icon": str(icon)}
    write_whole(entry, ENTRY.format(**{key: escaped(value) for key, value in values.items()}))
    print(f"wrote {entry}")
    return 0


def quoted(word: str) -> str:
    """Return a word of the command in a menu's entry.

    >>> print(quoted("/opt/a $b"))
    "/opt/a \\$b"
    """
    return '"' + re.sub(r'(["`$\\])', r"\\\1", word) + '"'


def escaped(value: str) -> str:
    """Return a text as a menu's entry holds it, on one line."""
    return value.replace("\\", r"\\").replace("\n", r"\n")
