"""The page's command line: Gradio over ONNX Runtime, on CUDA if available, else on the CPU.

    gptcore [--model DIR] [--variant NAME] [--translate DIR] [--host HOST] [--port PORT]

An event of the page becomes messages. A worker thread generates the reply with
gptcore.generate, and gptcore.page.streaming sends it to the browser. No module here imports torch.
"""

import argparse
import os
import socket
from pathlib import Path

from gptcore import __version__
from gptcore.bundle import VARIANTS, default_model, read_facts
from gptcore.checks import UserError
from gptcore.system.cores import say_if_busy
from gptcore.system.runtime import (
    WITH_CUDA,
    check_runtime,
    device_line,
    has_gpu_package,
    installed_runtimes,
    runtime_line,
)


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
    translator = default_model().with_name("translate")  # a Space may contain one
    parser.add_argument(
        "--translate",
        type=Path,
        default=translator if translator.is_dir() else None,
        help="the folder of a translation model (default: models/translate, if there is one)",
    )
    parser.add_argument("--host", default=environment("GRADIO_SERVER_NAME", "127.0.0.1"))
    port = environment("PORT") or environment("GRADIO_SERVER_PORT") or "7860"
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        default="SPACE_ID" in os.environ,
        help="a proxy in front tells the visitors' addresses in X-Forwarded-For",
    )


def run(options: argparse.Namespace) -> int:
    """Check the options, import what takes seconds to load, and serve until Ctrl-C."""
    host = options.host.strip("[]")  # the user may have copied an IPv6 address from a URL
    check_port(host, options.port)
    for folder in filter(None, (options.model, options.translate)):
        read_facts(folder)
    print(runtime_line(installed_runtimes(), has_gpu_package()), flush=True)
    check_runtime()
    from gptcore.onnx_session import has_cuda, load_model
    from gptcore.translation.onnx import load_translator

    model = load_model(options.model, variant=options.variant)
    translator = load_translator(options.translate) if options.translate else None
    from gptcore.page.build import build_page, launch_options
    from gptcore.page.zero_gpu import declare_gpu_function

    declare_gpu_function()
    print(f"{model.bundle.name}: {device_line(model)}")
    if translator:
        print(f"{translator.bundle.name}: {device_line(translator)}")
    if model.provider == "CPUExecutionProvider":
        say_if_busy()
    if has_cuda() and model.provider != "CUDAExecutionProvider":
        print(f"there is a GPU, but CUDA's libraries are missing: pip install {WITH_CUDA}")
    print(f"http://{in_url(host)}:{options.port} (Ctrl-C ends)", flush=True)
    build_page(model, translator).launch(
        server_name=in_url(host),  # Gradio also expects an IPv6 address in brackets
        server_port=options.port,
        **launch_options(host, options.behind_proxy),
    )
    return 0


def in_url(host: str) -> str:
    """Return the host as written in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def check_port(host: str, port: int) -> None:
    """Raise UserError if the page cannot listen on this port; Gradio would show a traceback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, (address, _, *rest) = found[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port, *rest))
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(
            f"cannot listen on {in_url(host)}:{port} ({error}): choose another --host or --port"
        ) from None
