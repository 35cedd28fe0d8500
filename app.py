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

import gradio as gr

from gptcore.bundle import VARIANTS
from gptcore.checks import UserError
from gptcore.onnx_session import OnnxModel, has_cuda, load_model
from gptcore.onnx_translator import OnnxTranslator, load_translator
from gptcore.page.chat import chat_tab
from gptcore.page.complete import completion_tab
from gptcore.page.inspect import inspect_tab
from gptcore.page.parts import device_line
from gptcore.page.translate import translate_tab
from gptcore.page.zero_gpu import declare_gpu_function

DEFAULT_MODEL = Path(__file__).parent / "models" / "default"
DEFAULT_TRANSLATOR = DEFAULT_MODEL.with_name("translate")  # a Space may have one
CONCURRENT = 4  # generations at a time; the others wait in the queue
CSS = """
.gradio-container { max-width: 1200px !important; width: 100% !important; margin: 0 auto; }
.examples .example { border: 1px solid var(--border-color-primary); border-radius: 8px; }
.status, .device { font-size: 0.85rem; opacity: 0.85; min-height: 1.4em; }
footer .divider { display: none; }
.heat-map .altair { padding: 10px; overflow-x: auto; align-items: safe center !important; }
"""
LAUNCH = {
    "theme": gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
    "css": CSS,
    "footer_links": ["api"],
    "share": False,
    "quiet": True,
    "strict_cors": True,
    "ssr_mode": False,
    "run_history": False,
    "enable_monitoring": False,
}


def build_page(model: OnnxModel, translator: OnnxTranslator | None = None) -> gr.Blocks:
    """The whole page: chat, or text completion for a base model; and what else there is."""
    bundle = model.bundle
    tabs = {"Chat" if bundle.is_chat else "Text": lambda: first_tab(model)}
    if translator:
        tabs["Translate"] = lambda: translate_tab(translator)
    if bundle.inspect:
        tabs["Inspect"] = lambda: inspect_tab(bundle)
    with gr.Blocks(title=f"{bundle.name} · gptcore", analytics_enabled=False) as page:
        if len(tabs) == 1:
            first_tab(model)
        else:
            with gr.Tabs():
                for name, build in tabs.items():
                    with gr.Tab(name):
                        build()
    return page.queue(max_size=64, default_concurrency_limit=CONCURRENT)


def first_tab(model: OnnxModel) -> None:
    (chat_tab if model.bundle.is_chat else completion_tab)(model)


def main(arguments: list[str] | None = None) -> int:
    """Load the model and serve the page until Ctrl-C."""
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
    options = parser.parse_args(arguments)
    declare_gpu_function()
    try:
        model = load_model(options.model, variant=options.variant)
        translator = load_translator(options.translate) if options.translate else None
        check_port(options.host, options.port)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{model.bundle.name}: {device_line(model)}")
    if translator:
        print(f"{translator.bundle.name}: {device_line(translator)}")
    if has_cuda() and model.provider != "CUDAExecutionProvider":
        print("there is a GPU, but not CUDA's libraries: pip install onnxruntime-gpu[cuda,cudnn]")
    print(f"http://{options.host}:{options.port} (Ctrl-C ends)", flush=True)
    build_page(model, translator).launch(
        server_name=options.host,
        server_port=options.port,
        **LAUNCH,
    )
    return 0


def check_port(host: str, port: int) -> None:
    """A clear word before Gradio's traceback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"cannot listen on {host}:{port} ({error}): choose another --port"
            ) from None


if __name__ == "__main__":
    sys.exit(main())
