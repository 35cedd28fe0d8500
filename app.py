"""The page: Gradio over ONNX Runtime, on CUDA where there is one, else CPU.

    python app.py [--model DIR] [--variant NAME] [--translate DIR] [--host HOST] [--port PORT]

A page event becomes messages, gptcore.generate turns them into pieces of text in a worker
thread, and `stream` hands those to the browser (see gptcore/page/). Nothing here imports torch.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from gptcore.bundle import VARIANTS, read_facts
from gptcore.checks import UserError
from gptcore.command_line import guard

DEFAULT_MODEL = Path(__file__).parent / "models" / "default"
DEFAULT_TRANSLATOR = DEFAULT_MODEL.with_name("translate")  # a Space may have one


def main(arguments: list[str] | None = None) -> int:
    """Load the model and serve the page until Ctrl-C."""
    return guard(lambda: serve(make_parser().parse_args(arguments)))


def make_parser() -> argparse.ArgumentParser:
    environment = os.environ.get
    parser = argparse.ArgumentParser(prog="python app.py", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="a model folder")
    parser.add_argument("--variant", help=f"{', '.join(VARIANTS)} (default: the fastest there is)")
    parser.add_argument(
        "--translate",
        type=Path,
        default=DEFAULT_TRANSLATOR if DEFAULT_TRANSLATOR.is_dir() else None,
        help="the folder of a translation model (default: models/translate, if there is one)",
    )
    parser.add_argument("--host", default=environment("GRADIO_SERVER_NAME", "127.0.0.1"))
    port = environment("PORT") or environment("GRADIO_SERVER_PORT") or "7860"
    parser.add_argument("--port", type=int, default=port)
    return parser


def serve(options: argparse.Namespace) -> int:
    """Check what was asked for, then load what takes seconds to import."""
    host = options.host.strip("[]")  # an IPv6 address may come as a URL has it
    check_port(host, options.port)
    for folder in filter(None, (options.model, options.translate)):
        read_facts(folder)
    from gptcore.onnx_session import has_cuda, load_model
    from gptcore.onnx_translator import load_translator

    model = load_model(options.model, variant=options.variant)
    translator = load_translator(options.translate) if options.translate else None
    from gptcore.page.build import LAUNCH, build_page
    from gptcore.page.parts import device_line
    from gptcore.page.zero_gpu import declare_gpu_function

    declare_gpu_function()
    print(f"{model.bundle.name}: {device_line(model)}")
    if translator:
        print(f"{translator.bundle.name}: {device_line(translator)}")
    if has_cuda() and model.provider != "CUDAExecutionProvider":
        print("there is a GPU, but not CUDA's libraries: pip install onnxruntime-gpu[cuda,cudnn]")
    print(f"http://{in_url(host)}:{options.port} (Ctrl-C ends)", flush=True)
    build_page(model, translator).launch(
        server_name=in_url(host),  # so Gradio wants it, too
        server_port=options.port,
        **LAUNCH,
    )
    return 0


def in_url(host: str) -> str:
    """The host as it stands in a URL: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def check_port(host: str, port: int) -> None:
    """UserError if the page cannot listen there; Gradio would show a traceback."""
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


if __name__ == "__main__":
    sys.exit(main())
