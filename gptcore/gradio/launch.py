"""The page's command line: Gradio over ONNX Runtime, on CUDA or on the CPU, whichever is faster.

    gptcore [--model DIR] [--variant NAME] [--translate DIR] [--host HOST] [--port PORT]

An event of the page becomes messages, the engine writes the reply, and gptcore.page.streaming sends
it to the browser. No module here imports torch.
"""

import argparse
import inspect
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore import __version__
from gptcore.api.serve import add_door_arguments, choose_access, is_shared, others_reach, secret
from gptcore.bundle import VARIANTS, default_model, read_facts
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.page.load import load_page
from gptcore.system.cores import say_if_busy
from gptcore.system.files import CHECKOUT
from gptcore.system.network import allow_connections, checked_port, in_url, is_loopback, reachable
from gptcore.system.runtime import (
    WITH_CUDA,
    has_gpu_package,
    installed_runtimes,
    runtime_line,
)

if TYPE_CHECKING:
    from gptcore.api.login import Login
    from gptcore.model import OnnxModel
    from gptcore.translation.onnx import OnnxTranslator

PASSWORD = "GPTCORE_PASSWORD"
# Options of what others reach, and their values where they are not given.
FOR_OTHERS: dict[str, object] = {
    "auth": None,
    "api_key": False,
    "public": False,
    "cors": [],
    "rate_limit": None,
    "behind_proxy": False,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    environment = os.environ.get
    parser.add_argument("--version", action="version", version=f"gptcore {__version__}")
    parser.add_argument(
        "--model",
        type=Path,
        default=default_model(),
        help="a model folder (default: the model that ships)",
    )
    parser.add_argument("--variant", help=f"{', '.join(VARIANTS)} (default: the fastest there is)")
    parser.add_argument(
        "--translate",
        type=Path,
        default=usual_translator(),
        help="the folder of a translation model (default: models/translate, if there is one)",
    )
    parser.add_argument(
        "--host",
        default=environment("GRADIO_SERVER_NAME", "127.0.0.1"),
        help="address to listen on; 0.0.0.0: all (default: $GRADIO_SERVER_NAME or 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=usual_port(),
        help="port to listen on (default: $PORT, $GRADIO_SERVER_PORT or 7860)",
    )
    parser.add_argument(
        "--auth", metavar="USER", help=f"ask for this user and a password, of {PASSWORD} or typed"
    )
    add_door_arguments(parser)
    parser.add_argument(
        "--window",
        action="store_true",
        help="open the page in its own window, on the port of its first start",
    )


def usual_translator() -> Path | None:
    """Return the folder models/translate, as a Space has one, if it holds a translator."""
    folder = default_model().with_name("translate")
    if not folder.is_dir():
        return None
    with suppress(UserError):  # which opening it tells
        return folder if isinstance(read_facts(folder).config, Seq2SeqConfig) else None
    return folder


def choose_login(options: argparse.Namespace, host: str) -> "Login | None":
    """Return what the options ask of every visitor; None where everyone may come in."""
    from gptcore.api.login import Login

    if options.auth is not None:
        if not options.auth or ":" in options.auth:
            raise UserError(f"--auth {options.auth!r}: give a user's name, without a colon")
        password = secret(PASSWORD, f"password of {options.auth}: ")
        if not password:
            raise UserError(f"--auth {options.auth}: the password is empty: set {PASSWORD}")
        return Login(user=options.auth, password=password)
    if options.public or not others_reach(options, host):
        return None
    return Login(token=secrets.token_urlsafe(24))


def trains(options: argparse.Namespace, host: str) -> bool:
    """Return whether the page offers Train: in a checkout, to a person at this machine alone."""
    rooms = [CHECKOUT / "training", CHECKOUT / "export"]
    return not is_shared(options, host) and all(room.is_dir() for room in rooms)


def run(options: argparse.Namespace) -> int:
    """Check the options, import what takes seconds to load, and serve until Ctrl-C."""
    host = options.host.strip("[]")  # the user may have copied an IPv6 address from a URL
    if options.window:
        return run_window(options, host)
    for folder in filter(None, (options.model, options.translate)):
        read_facts(folder)
    options.port = checked_port(host, options.port)
    allow_connections()
    login, access = choose_login(options, host), choose_access(options, host)
    print(runtime_line(installed_runtimes(), has_gpu_package()), flush=True)
    models, translator, bench = load_page(options, trains(options, host), is_shared(options, host))
    print("starting the page ...", flush=True)
    import_gradio()
    from gptcore.gradio.build import launch_page

    declare_gpu_function()
    say_what_runs(models.open[models.names[0]], translator)
    say_where(options, host, f"/?token={login.token}" if login and login.token else "")
    # Gradio also expects an IPv6 address in brackets.
    place = {"server_name": in_url(host), "server_port": options.port}
    launch_page(models, translator, bench, access, login, **place)
    return 0


def import_gradio() -> None:
    """Import Gradio without the type stubs that it writes for editors beside its own files.

    It writes them in every process that imports it (gradio/component_meta.py), which takes more
    than a third of the import's time; of a class whose file it does not find it writes none.
    """

    def find_nothing(_: object) -> str:
        raise OSError  # as for an object that has no file

    getfile, inspect.getfile = inspect.getfile, find_nothing  # type: ignore[assignment]
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = getfile


def declare_gpu_function() -> None:
    """Declare a function for the GPU: Hugging Face's ZeroGPU shuts down a Space without one.

    It is never called: a GPU that is lent for single calls cannot keep a conversation's cache.
    """
    with suppress(ImportError):  # elsewhere there is no package `spaces`
        import spaces

        spaces.GPU(lambda: None)


def say_what_runs(model: "OnnxModel", translator: "OnnxTranslator | None") -> None:
    """Print what the translator runs on, and why the model may be slower than it could be."""
    from gptcore.engine.onnx_session import has_cuda
    from gptcore.model import device_line

    if translator:
        print(f"{translator.bundle.name}: {device_line(translator)}")
    if model.provider == "CPUExecutionProvider":
        say_if_busy()
    if has_cuda() and model.provider != "CUDAExecutionProvider":
        missing = f"CUDA's libraries are missing: pip install {WITH_CUDA}"
        print(f"there is a GPU, but this model is faster on the CPU, or {missing}")


def usual_port() -> str:
    return os.environ.get("PORT") or os.environ.get("GRADIO_SERVER_PORT") or "7860"


def say_where(options: argparse.Namespace, host: str, token: str) -> None:
    """Print the address at which visitors open the page; `token` is the end of their link."""
    here = f"http://{reachable(host)}:{options.port}"
    if token and options.behind_proxy:
        print(f"visitors open the proxy's address followed by {token}")
        print("the proxy must lead to:")
        token = ""
    print(f"{here}{token} (Ctrl-C ends)", flush=True)


def run_window(options: argparse.Namespace, host: str) -> int:
    """Open a window; what it shows comes by a server of its own, without Gradio."""
    for_others = [name for name, idle in FOR_OTHERS.items() if getattr(options, name) != idle]
    for_others += [] if is_loopback(host) else ["host"]
    if for_others:
        given = " and ".join("--" + name.replace("_", "-") for name in for_others)
        raise UserError(f"--window is for this machine alone: leave out {given}")
    if options.port != int(usual_port()):
        raise UserError("--window keeps the port of its first start: leave out --port")
    from gptcore.window.application import show_models

    return show_models(options, trains(options, host))
