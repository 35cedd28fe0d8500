"""The window's program: `gptcore --window`, and the application that `export desktop` writes.

An application folder has one model, in the place of the model that ships.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore import __version__
from gptcore.api.serve import MODELS, load_models
from gptcore.bundle import default_model, read_facts
from gptcore.system.command_line import guard
from gptcore.system.files import data_folder
from gptcore.system.network import allow_connections
from gptcore.system.runtime import check_runtime
from gptcore.window.home import Home
from gptcore.window.open import open_window

if TYPE_CHECKING:
    from starlette.applications import Starlette


def show_models(options: argparse.Namespace, trains: bool = False, name: str = "window") -> int:
    """Show the models of the options in a window; return the exit code. Raises UserError.

    `trains`: whether Train is offered. `name`: of the program, whose windows share what is kept.
    """
    for folder in filter(None, (options.model, options.translate)):
        read_facts(folder)
    allow_connections()
    home = Home(data_folder() / name)

    def load(show: Callable[[], None]) -> "Starlette":
        check_runtime()
        from gptcore.page.train.workbench import Workbench
        from gptcore.translation.onnx import load_translator
        from gptcore.window.server import window_app

        models = load_models(options)
        translator = load_translator(options.translate) if options.translate else None
        bench = Workbench(Path("runs"), options.models or MODELS, models.add) if trains else None
        return window_app(models, translator, bench, show, home.folder)

    return open_window(load, home, title=read_facts(options.model).name)


def main() -> int:
    """Run an application folder: its own model, and those that somebody put beside it."""
    # PyInstaller's folder is not that of the browser, which is started from here.
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    name = Path(sys.executable).stem
    parser = argparse.ArgumentParser(prog=name, description="Talk with a model in a window.")
    parser.add_argument("--version", action="version", version=f"gptcore {__version__}")
    parser.parse_args()
    model = default_model()
    options = argparse.Namespace(
        model=model, models=model.parent, variant=None, translate=None, memory=4
    )
    return guard(lambda: show_models(options, name=name), "requirements.txt")
