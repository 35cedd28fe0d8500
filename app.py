"""The chat page: Gradio over ONNX Runtime, streaming, on CUDA where there is one, else CPU.

    python app.py [--model DIR] [--host HOST] [--port PORT]

A page event becomes messages, gptcore.generate turns them into pieces of text in a worker
thread, and `stream` hands those to the browser. Nothing here imports torch.
"""

import argparse
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import onnxruntime

from gptcore.checks import UserError
from gptcore.generate import Piece, chat, complete
from gptcore.inputs import text_of, to_messages, to_settings
from gptcore.onnx_session import OnnxModel, RunStop, has_cuda, load_model
from gptcore.sampling import Sampling
from gptcore.streaming import Generations, stream

DEFAULT_MODEL = Path(__file__).parent / "models" / "default"
CONCURRENT = 4  # generations at a time; the others wait in the queue
IDLE = {"show_label": False, "submit_btn": True, "stop_btn": False}
BUSY = {"submit_btn": False, "stop_btn": True}
HIDDEN = {"api_visibility": "private", "show_progress": "hidden"}
EXAMPLES = [
    "Hello! Who are you?",
    "My name is Ada.",
    "Tell me a story about a cat.",
    "What is the capital of France?",
]
CSS = """
.gradio-container { max-width: 1200px !important; width: 100% !important; margin: 0 auto; }
.examples .example { border: 1px solid var(--border-color-primary); border-radius: 8px; }
#status, #device { font-size: 0.85rem; opacity: 0.85; min-height: 1.4em; }
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
Updates = AsyncIterator[tuple]  # new values of the page's components


def settings_panel(model: OnnxModel) -> list[gr.components.Component]:
    """The sliders of the side panel."""
    default, block_size = Sampling(), model.config.block_size
    return [
        gr.Slider(0, 2, default.temperature, step=0.05, label="Temperature", info="0: no chance"),
        gr.Slider(1, block_size - 1, default_max_tokens(model), step=1, label="Max tokens"),
        gr.Slider(0, 200, default.top_k, step=1, label="Top-k", info="0: all tokens"),
        gr.Slider(0.05, 1, default.top_p, step=0.01, label="Top-p", info="1: off"),
        gr.Slider(0, 1, default.min_p, step=0.01, label="Min-p", info="0: off"),
        gr.Slider(
            1, 2, default.repetition_penalty, step=0.01, label="Repetition penalty", info="1: off"
        ),
        gr.Number(default.seed, precision=0, label="Seed", info="-1: a new one each time"),
    ]


def default_max_tokens(model: OnnxModel) -> int:
    return min(256, model.config.block_size // 2)


def build_page(model: OnnxModel) -> gr.Blocks:
    """The whole page for a loaded model: chat, or text completion for a base model."""
    with gr.Blocks(title=f"{model.bundle.name} · gptcore", analytics_enabled=False) as page:
        (chat_page if model.bundle.is_chat else completion_page)(model)
    return page.queue(max_size=64, default_concurrency_limit=CONCURRENT)


def chat_page(model: OnnxModel) -> None:
    """Streaming chat with retry, edit, undo, clear; and the endpoint /chat."""
    gr.Markdown(f"# {model.bundle.name}\nA small language model. It can be wrong.")
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            chatbot = gr.Chatbot(
                show_label=False,
                height="60vh",
                editable="user",
                render_markdown=False,  # text is shown as typed, and no image is fetched
                examples=[{"text": text} for text in EXAMPLES],
                buttons=["copy"],
            )
            box = gr.Textbox(placeholder="Type a message", max_lines=8, autofocus=True, **IDLE)
            status = gr.Markdown(elem_id="status")
            gr.Markdown(device_line(model), elem_id="device")
        with gr.Column(scale=1, min_width=280):
            system = gr.Textbox(label="System prompt", lines=2, placeholder="Optional")
            sliders = settings_panel(model)

    handle = ChatHandlers(model)
    inputs, outputs = [chatbot, system, *sliders], [chatbot, box, status]
    box.submit(handle.send, [box, *inputs], outputs, **HIDDEN)
    box.stop(handle.stop, queue=False, **HIDDEN)
    chatbot.retry(handle.retry, inputs, outputs, **HIDDEN)
    chatbot.edit(handle.edit, inputs, outputs, **HIDDEN)
    chatbot.example_select(handle.example, inputs, outputs, **HIDDEN)
    # Through the queue, so that these updates come after those of a reply that they end.
    chatbot.undo(handle.undo, [chatbot], outputs, **HIDDEN)
    chatbot.clear(handle.clear, None, outputs, **HIDDEN)
    gr.api(chat_endpoint(model), api_name="chat")


class ChatHandlers:
    """What the chat's events do: each makes a history, and `respond` answers it."""

    def __init__(self, model: OnnxModel):
        self.model, self.generations = model, Generations()

    async def respond(
        self, request: gr.Request, history: list, system_prompt: str, *values: Any
    ) -> Updates:
        """Stream the reply to a history that ends with the user's message."""
        block_size, stop = self.model.config.block_size, RunStop()
        try:
            messages = to_messages(history, system_prompt)
            settings = to_settings(values, block_size)
            async with self.generations.begin(request.session_hash, stop):
                pieces = chat(self.model, messages, *settings, stop)
                yield history, gr.Textbox(value="", **BUSY), "reading ..."
                async for progress in stream(pieces, stop):
                    if not self.generations.is_current(request.session_hash, stop):
                        yield (gr.skip(),) * 3  # Gradio repeats the last update at the end
                        return
                    shown = [*history, turn("assistant", progress.text)]
                    yield shown, gr.skip(), progress.line(block_size)
                yield gr.skip(), gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            yield gr.skip(), gr.Textbox(**IDLE), f"⚠ {error}"

    async def send(self, request: gr.Request, text: str, history: list, *rest: Any) -> Updates:
        async for update in self.respond(request, [*history, turn("user", text)], *rest):
            yield update

    async def retry(
        self, request: gr.Request, event: gr.RetryData, history: list, *rest: Any
    ) -> Updates:
        async for update in self.respond(request, history[: event.index + 1], *rest):
            yield update

    async def edit(
        self, request: gr.Request, event: gr.EditData, history: list, *rest: Any
    ) -> Updates:
        async for update in self.send(request, event.value, history[: event.index], *rest):
            yield update

    async def example(
        self, request: gr.Request, event: gr.SelectData, history: list, *rest: Any
    ) -> Updates:
        async for update in self.send(request, event.value["text"], history, *rest):
            yield update

    def stop(self, request: gr.Request) -> None:
        self.generations.stop(request.session_hash)

    async def undo(self, request: gr.Request, event: gr.UndoData, history: list) -> tuple:
        await self.generations.discard(request.session_hash)
        text = text_of(history[event.index]["content"])
        return history[: event.index], gr.Textbox(value=text, **IDLE), ""

    async def clear(self, request: gr.Request) -> tuple:
        await self.generations.discard(request.session_hash)
        return [], gr.Textbox(**IDLE), ""


def completion_page(model: OnnxModel) -> None:
    """Text completion, for a model that was not trained on conversations; and /complete."""
    gr.Markdown(
        f"# {model.bundle.name}\nA **base model**: it continues your text. It was not trained on "
        f"conversations and does not answer questions."
    )
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            hint = "Write a beginning; the arrow (or Shift+Enter) continues it"
            box = gr.Textbox(placeholder=hint, lines=14, value="", autofocus=True, **IDLE)
            status = gr.Markdown(elem_id="status")
            gr.Markdown(device_line(model), elem_id="device")
        with gr.Column(scale=1, min_width=280):
            sliders = settings_panel(model)
    generations, block_size = Generations(), model.config.block_size

    async def respond(request: gr.Request, text: str, *values: Any) -> Updates:
        try:
            settings, stop = to_settings(values, block_size), RunStop()
            async with generations.begin(request.session_hash, stop):
                pieces = complete(model, text, *settings, stop)
                yield gr.Textbox(**BUSY), "reading ..."
                async for progress in stream(pieces, stop):
                    yield text + progress.text, progress.line(block_size)
                yield gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            yield gr.Textbox(**IDLE), f"⚠ {error}"

    def stop_it(request: gr.Request) -> None:
        generations.stop(request.session_hash)

    box.submit(respond, [box, *sliders], [box, status], **HIDDEN)
    box.stop(stop_it, queue=False, **HIDDEN)
    gr.api(completion_endpoint(model), api_name="complete")


def chat_endpoint(model: OnnxModel) -> Callable:
    """The function behind the API's /chat; its signature is the API's."""
    default = Sampling()

    async def answer(
        message: str,
        history: list[dict[str, Any]] | None = None,
        system_prompt: str = "",
        temperature: float = default.temperature,
        max_tokens: int = default_max_tokens(model),
        top_k: int = default.top_k,
        top_p: float = default.top_p,
        min_p: float = default.min_p,
        repetition_penalty: float = default.repetition_penalty,
        seed: int = default.seed,
    ) -> AsyncIterator[str]:
        values = (temperature, max_tokens, top_k, top_p, min_p, repetition_penalty, seed)

        def begin(sampling: Sampling, max_tokens: int, stop: RunStop) -> Iterator[Piece]:
            messages = to_messages([*(history or []), turn("user", message)], system_prompt)
            return chat(model, messages, sampling, max_tokens, stop)

        async for text in api_texts(model, values, begin):
            yield text

    return answer


def completion_endpoint(model: OnnxModel) -> Callable:
    """The function behind the API's /complete."""
    default = Sampling()

    async def continue_text(
        text: str,
        temperature: float = default.temperature,
        max_tokens: int = default_max_tokens(model),
        top_k: int = default.top_k,
        top_p: float = default.top_p,
        min_p: float = default.min_p,
        repetition_penalty: float = default.repetition_penalty,
        seed: int = default.seed,
    ) -> AsyncIterator[str]:
        values = (temperature, max_tokens, top_k, top_p, min_p, repetition_penalty, seed)
        async for more in api_texts(model, values, partial(complete, model, text)):
            yield more

    return continue_text


async def api_texts(
    model: OnnxModel,
    values: tuple,
    begin: Callable[[Sampling, int, RunStop], Iterator[Piece]],
) -> AsyncIterator[str]:
    """The growing reply of an API call; a UserError reaches the caller as its message."""
    try:
        stop = RunStop()
        async for progress in stream(
            begin(*to_settings(values, model.config.block_size), stop), stop
        ):
            yield progress.text
    except UserError as error:
        raise gr.Error(str(error), print_exception=False) from None


def turn(role: str, text: str) -> dict[str, Any]:
    """A message as the Chatbot takes it; as a part, so that its white space is kept."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def device_line(model: OnnxModel) -> str:
    device = "CUDA" if model.provider == "CUDAExecutionProvider" else "CPU"
    threads = "1 thread" if model.threads == 1 else f"{model.threads} threads"
    return (
        f"{model.bundle.facts['parameters']:,} parameters on {device} ({model.provider}, "
        f"{threads}) · ONNX Runtime {onnxruntime.__version__} · "
        f"{model.bundle.onnx.name}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Load the model and serve the page until Ctrl-C."""
    environment = os.environ.get
    parser = argparse.ArgumentParser(prog="python app.py", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="a model folder")
    parser.add_argument("--host", default=environment("GRADIO_SERVER_NAME", "127.0.0.1"))
    port = environment("PORT") or environment("GRADIO_SERVER_PORT") or "7860"
    parser.add_argument("--port", type=int, default=int(port))
    options = parser.parse_args(arguments)
    try:
        model = load_model(options.model)
        check_port(options.host, options.port)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{model.bundle.name}: {device_line(model)}")
    if has_cuda() and model.provider != "CUDAExecutionProvider":
        print("there is a GPU, but not CUDA's libraries: pip install onnxruntime-gpu[cuda,cudnn]")
    print(f"http://{options.host}:{options.port} (Ctrl-C ends)", flush=True)
    build_page(model).launch(
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
