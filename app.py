"""The chat page: Gradio over ONNX Runtime, streaming, on CUDA where there is one, else CPU.

    python app.py [--model DIR] [--host HOST] [--port PORT]

A page event becomes messages, gptcore.generate turns them into pieces of text in a worker
thread, and `stream` hands those to the browser. Nothing here imports torch.
"""

import argparse
import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
import onnxruntime

from gptcore.chat import Message
from gptcore.checks import UserError
from gptcore.generate import Piece, chat, complete
from gptcore.onnx_session import OnnxModel, RunStop, load_model
from gptcore.sampling import Sampling

DEFAULT_MODEL = Path(__file__).parent / "models" / "default"
YIELD_SECONDS = 0.05  # an update per token freezes browsers
CONCURRENT = 4  # generations at a time; the others wait in the queue
IDLE = {"show_label": False, "submit_btn": True, "stop_btn": False}
BUSY = {"submit_btn": False, "stop_btn": True}
FINISH = {
    "end": "the reply is complete",
    "length": "stopped at max tokens",
    "context": "stopped: the context is full",
    "stopped": "stopped by you",
}
EXAMPLES = [
    "Hello! Who are you?",
    "My name is Ada. What is my name?",
    "Tell me a story about a cat.",
    "What is the capital of France?",
]
CSS = """
.gradio-container { max-width: 1200px !important; margin: 0 auto !important; }
#status, #device { font-size: 0.85rem; opacity: 0.85; min-height: 1.4em; }
"""


Updates = AsyncIterator[tuple]  # new values of the page's components


@dataclass
class Progress:
    """A reply while it grows, and its line of figures."""

    started: float = field(default_factory=time.perf_counter)
    first: float | None = None
    text: str = ""
    piece: Piece | None = None

    def add(self, piece: Piece) -> None:
        self.first = self.first or time.perf_counter()
        self.text, self.piece = self.text + piece.text, piece

    def line(self, block_size: int) -> str:
        piece, now = self.piece, time.perf_counter()
        if piece is None or self.first is None:
            return "reading ..."
        speed = (piece.n_new - 1) / (now - self.first) if piece.n_new > 1 else 0.0
        used = piece.n_prompt + piece.n_new
        parts = [
            f"{piece.n_new} tokens",
            f"{speed:,.0f} tokens/s",
            f"first token after {1000 * (self.first - self.started):,.0f} ms",
            f"context {used} of {block_size}, {block_size - used} left",
        ]
        if piece.n_dropped:
            parts.append(f"the oldest {piece.n_dropped} messages no longer fit and were left out")
        if piece.finish:
            parts.append(FINISH[piece.finish])
        return " · ".join(parts)


async def stream(pieces: Iterator[Piece], stop: RunStop) -> AsyncIterator[Progress]:
    """Compute pieces in a worker thread; yield at most every YIELD_SECONDS.

    Whatever ends this generator (Stop, a closed tab, an error) ends the computation too.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue()

    def work() -> None:
        try:
            for piece in pieces:
                loop.call_soon_threadsafe(queue.put_nowait, piece)
            loop.call_soon_threadsafe(queue.put_nowait, None)
        except Exception as error:  # shown by the page that waits for it
            loop.call_soon_threadsafe(queue.put_nowait, error)

    progress = Progress()
    worker = loop.run_in_executor(None, work)
    try:
        while True:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            for item in batch:
                if isinstance(item, Exception):
                    raise item
                if item is not None:
                    progress.add(item)
            yield progress
            if batch[-1] is None:
                return
            await asyncio.sleep(YIELD_SECONDS)
    finally:
        stop.set()
        await asyncio.shield(worker)


def text_of(content: Any) -> str:
    """A message's text: the page sends a list of parts, the API a string."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return content["text"]
    if isinstance(content, str):
        return content
    raise UserError(f"a message's content must be text, not {type(content).__name__}")


def to_messages(history: Any, system_prompt: Any) -> list[Message]:
    """The page's or a caller's history as messages; gptcore.chat checks the roles."""
    if not isinstance(history, list) or not all(isinstance(turn, dict) for turn in history):
        raise UserError('history must be a list of {"role": ..., "content": ...}')
    if not isinstance(system_prompt, str):
        raise UserError("system_prompt must be text")
    system = [{"role": "system", "content": system_prompt}] if system_prompt.strip() else []
    turns = [{"role": t.get("role"), "content": text_of(t.get("content"))} for t in history]
    return system + turns


def whole_number(name: str, value: Any) -> int:
    """Sliders send 10 as 10.0, and let NaN, true and 10.7 through."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise UserError(f"{name}={value!r} is not a whole number")
    return int(value)


def check_settings(model: OnnxModel, values: tuple) -> tuple[Sampling, int]:
    """The side panel's values, in the order of `settings_panel`, as sampling and max_tokens."""
    temperature, max_tokens, top_k, top_p, min_p, penalty, seed = values
    max_tokens = whole_number("max_tokens", max_tokens)
    if not (1 <= max_tokens < model.config.block_size):
        highest = model.config.block_size - 1
        raise UserError(f"max_tokens={max_tokens} is out of range: choose 1 to {highest}")
    top_k, seed = whole_number("top_k", top_k), whole_number("seed", seed)
    return Sampling(temperature, top_k, top_p, min_p, penalty, seed), max_tokens


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


class Generations:
    """The running generation of each browser session, so that Stop finds it."""

    def __init__(self) -> None:
        self.stops: dict[str, RunStop] = {}

    def begin(self, request: gr.Request) -> RunStop:
        """A session has one generation at a time: a new one ends the old one."""
        self.stop(request)
        self.stops[request.session_hash] = RunStop()
        return self.stops[request.session_hash]

    def stop(self, request: gr.Request) -> None:
        if running := self.stops.pop(request.session_hash, None):
            running.set()


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
                label="Conversation",
                height="60vh",
                editable="user",
                examples=[{"text": text} for text in EXAMPLES],
                buttons=["copy"],
            )
            box = gr.Textbox(placeholder="Type a message", max_lines=8, autofocus=True, **IDLE)
            status = gr.Markdown(elem_id="status")
            gr.Markdown(device_line(model), elem_id="device")
        with gr.Column(scale=1, min_width=280):
            system = gr.Textbox(label="System prompt", lines=2, placeholder="Optional")
            settings = settings_panel(model)
    running = Generations()

    async def respond(
        request: gr.Request, history: list, system_prompt: str, *values: Any
    ) -> Updates:
        """Stream the reply to a history that ends with the user's message."""
        try:
            stop = running.begin(request)
            messages = to_messages(history, system_prompt)
            pieces = chat(model, messages, *check_settings(model, values), stop)
            yield history, gr.Textbox(value="", **BUSY), "reading ..."
            async for progress in stream(pieces, stop):
                shown = [*history, turn("assistant", progress.text)]
                yield shown, gr.skip(), progress.line(model.config.block_size)
            yield gr.skip(), gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            gr.Warning(str(error))
            yield gr.skip(), gr.Textbox(**IDLE), f"⚠ {error}"

    async def send(request: gr.Request, text: str, history: list, *rest: Any) -> Updates:
        async for update in respond(request, [*history, turn("user", text)], *rest):
            yield update

    async def retry(request: gr.Request, event: gr.RetryData, history: list, *rest: Any) -> Updates:
        async for update in respond(request, history[: event.index + 1], *rest):
            yield update

    async def edit(request: gr.Request, event: gr.EditData, history: list, *rest: Any) -> Updates:
        edited = [*history[: event.index], turn("user", event.value)]
        async for update in respond(request, edited, *rest):
            yield update

    async def example(
        request: gr.Request, event: gr.SelectData, history: list, *rest: Any
    ) -> Updates:
        async for update in respond(request, [*history, turn("user", event.value["text"])], *rest):
            yield update

    def undo(event: gr.UndoData, history: list) -> tuple[list, str, str]:
        return history[: event.index], text_of(history[event.index]["content"]), ""

    outputs = [chatbot, box, status]
    hidden = {"api_visibility": "private", "show_progress": "hidden"}
    box.submit(send, [box, chatbot, system, *settings], outputs, **hidden)
    for event, handler in ((chatbot.retry, retry), (chatbot.edit, edit)):
        event(handler, [chatbot, system, *settings], outputs, **hidden)
    chatbot.example_select(example, [chatbot, system, *settings], outputs, **hidden)
    chatbot.undo(undo, [chatbot], outputs, **hidden)
    chatbot.clear(running.stop, queue=False, **hidden).then(lambda: "", None, status, **hidden)
    box.stop(running.stop, queue=False, **hidden)
    gr.api(chat_endpoint(model), api_name="chat")


def completion_page(model: OnnxModel) -> None:
    """Text completion, for a model that was not trained on conversations; and /complete."""
    gr.Markdown(
        f"# {model.bundle.name}\nA **base model**: it continues your text. It was not trained on "
        f"conversations and does not answer questions."
    )
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            box = gr.Textbox(label="Text", lines=14, value="", autofocus=True, **IDLE)
            status = gr.Markdown(elem_id="status")
            gr.Markdown(device_line(model), elem_id="device")
        with gr.Column(scale=1, min_width=280):
            settings = settings_panel(model)
    running = Generations()

    async def respond(request: gr.Request, text: str, *values: Any) -> Updates:
        try:
            stop = running.begin(request)
            pieces = complete(model, text, *check_settings(model, values), stop)
            yield gr.Textbox(**BUSY), "reading ..."
            async for progress in stream(pieces, stop):
                yield text + progress.text, progress.line(model.config.block_size)
            yield gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            gr.Warning(str(error))
            yield gr.Textbox(**IDLE), f"⚠ {error}"

    hidden = {"api_visibility": "private", "show_progress": "hidden"}
    box.submit(respond, [box, *settings], [box, status], **hidden)
    box.stop(running.stop, queue=False, **hidden)
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
        try:
            messages = to_messages([*(history or []), turn("user", message)], system_prompt)
            stop = RunStop()
            pieces = chat(model, messages, *check_settings(model, values), stop)
            async for progress in stream(pieces, stop):
                yield progress.text
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None

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
        try:
            stop = RunStop()
            pieces = complete(model, text, *check_settings(model, values), stop)
            async for progress in stream(pieces, stop):
                yield progress.text
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return continue_text


def turn(role: str, text: str) -> dict[str, Any]:
    """A message as the Chatbot takes it; as a part, so that its white space is kept."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def device_line(model: OnnxModel) -> str:
    device = "CUDA" if model.provider == "CUDAExecutionProvider" else "CPU"
    return (
        f"{model.bundle.facts['parameters']:,} parameters on {device} ({model.provider}, "
        f"{model.threads} threads) · ONNX Runtime {onnxruntime.__version__} · "
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
    build_page(model).launch(
        server_name=options.host,
        server_port=options.port,
        theme=gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=CSS,
        share=False,
        strict_cors=True,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        footer_links=["api"],
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
