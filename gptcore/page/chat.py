"""The chat tab, with streaming, stop, retry, edit, undo and clear, and the endpoint /chat."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import Any

import gradio as gr

from gptcore.checks import UserError
from gptcore.engine.generate import Request, chat_request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.page.inputs import text_of, to_messages, to_settings
from gptcore.page.parts import (
    BUSY,
    HIDDEN,
    IDLE,
    REPLIES,
    STREAMED,
    Updates,
    api_texts,
    default_max_tokens,
    heading,
    highest_max_tokens,
    settings_panel,
    status_line,
)
from gptcore.page.streaming import Generations, stream
from gptcore.system.runtime import device_line

# Gradio's Chatbot inserts texts into the page as HTML. An invisible character (U+2060, the word
# joiner) after "<" and "&" prevents them from starting a tag or an entity.
GUARD = "\u2060"

EXAMPLES = [
    "Hello! Who are you?",
    "My name is Ada.",
    "Tell me a story about a cat.",
    "What is the capital of France?",
]


def chat_tab(model: OnnxModel) -> None:
    """Add the chat, with retry, edit, undo and clear, and the endpoint /chat."""
    heading(model.bundle.name, "A small language model. It can be wrong.")
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            chatbot = gr.Chatbot(
                show_label=False,
                height="60vh",
                editable="user",
                render_markdown=False,
                latex_delimiters=[],
                examples=[{"text": text} for text in EXAMPLES],
                buttons=["copy"],
            )
            box = gr.Textbox(placeholder="Type a message", max_lines=8, autofocus=True, **IDLE)
            status = status_line()
            gr.Markdown(device_line(model), elem_classes="device")
        with gr.Column(scale=1, min_width=280):
            system = gr.Textbox(label="System prompt", lines=2, placeholder="Optional")
            sliders = settings_panel(model)

    handle = ChatHandlers(model)
    inputs, outputs = [chatbot, system, *sliders], [chatbot, box, status]
    box.submit(handle.send, [box, *inputs], outputs, **STREAMED)
    box.stop(handle.stop, queue=False, **HIDDEN)
    chatbot.retry(handle.retry, inputs, outputs, **STREAMED)
    chatbot.edit(handle.edit, inputs, outputs, **STREAMED)
    chatbot.example_select(handle.example, inputs, outputs, **STREAMED)
    # These events go through the queue, so that their updates follow the last one of the reply they
    # end.
    chatbot.undo(handle.undo, [chatbot], outputs, **HIDDEN)
    chatbot.clear(handle.clear, None, outputs, **HIDDEN)
    gr.api(chat_endpoint(model), api_name="chat", concurrency_limit=REPLIES)


class ChatHandlers:
    """The handlers of the chat's events. Each builds a history, which `respond` answers."""

    def __init__(self, model: OnnxModel):
        self.model, self.generations = model, Generations()

    async def respond(
        self,
        request: gr.Request,
        history: list,
        system_prompt: str,
        *values: Any,
        refused: list | None = None,
    ) -> Updates:
        """Stream the reply to a history that ends with the user's message.

        If the request is refused, the page keeps its content, or shows `refused` if that is given.
        """
        block_size, stop = self.model.config.block_size, Event()

        def begin() -> Request:
            messages = to_messages(history, system_prompt)
            messages = [m | {"content": as_typed(m["content"])} for m in messages]
            settings = to_settings(values, highest_max_tokens(self.model))
            return chat_request(self.model, messages, *settings)

        try:
            async with self.generations.begin(request.session_hash, stop):
                wanted = await asyncio.to_thread(begin)
                yield history, gr.Textbox(value="", **BUSY), "reading ..."
                async for progress in stream(self.model.engine, wanted, stop):
                    if not self.generations.is_current(request.session_hash, stop):
                        yield (gr.skip(),) * 3  # Gradio sends the last update again at the end
                        return
                    shown = [*history, turn("assistant", progress.text)]
                    yield shown, gr.skip(), progress.line(block_size)
                yield gr.skip(), gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            shown = gr.skip() if refused is None else refused
            yield shown, gr.Textbox(**IDLE), f"⚠ {error}"

    async def send(self, request: gr.Request, text: str, history: list, *rest: Any) -> Updates:
        async for update in self.respond(request, [*history, turn("user", text)], *rest):
            yield update

    async def retry(
        self, request: gr.Request, event: gr.RetryData, history: list, *rest: Any
    ) -> Updates:
        async for update in self.respond(request, history[: place(event) + 1], *rest):
            yield update

    async def edit(
        self, request: gr.Request, event: gr.EditData, history: list, *rest: Any
    ) -> Updates:
        before, after = history[: place(event)], history[place(event) + 1 :]
        unedited = [*before, turn("user", event.previous_value), *after]
        edited = [*before, turn("user", event.value)]
        async for update in self.respond(request, edited, *rest, refused=unedited):
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
        text = as_typed(text_of(history[place(event)]["content"]))
        return history[: place(event)], gr.Textbox(value=text, **IDLE), ""

    async def clear(self, request: gr.Request) -> tuple:
        await self.generations.discard(request.session_hash)
        return [], gr.Textbox(**IDLE), ""


def chat_endpoint(model: OnnxModel) -> Callable:
    """Return the function of the API's /chat; its signature is the API's signature."""
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

        def begin(sampling: Sampling, max_tokens: int) -> Request:
            earlier = to_messages([] if history is None else history, system_prompt)
            asked = {"role": "user", "content": text_of(message)}
            return chat_request(model, [*earlier, asked], sampling, max_tokens)

        async for text in api_texts(model, values, begin):
            yield text

    return answer


def place(event: gr.RetryData | gr.EditData | gr.UndoData) -> int:
    """The index of the message that the event is about."""
    assert isinstance(event.index, int)  # a pair would be of the older form of a history
    return event.index


def turn(role: str, text: str) -> dict[str, Any]:
    """Return a message in the Chatbot's form, as a part, so that its white space is kept."""
    guarded = re.sub("<(?=[a-zA-Z/!?])|&(?=[a-zA-Z#])", rf"\g<0>{GUARD}", as_typed(text))
    return {"role": role, "content": [{"type": "text", "text": guarded}]}


def as_typed(text: str) -> str:
    """Return the text that the user typed, given a message that the page shows."""
    return re.sub(f"(?<=[<&]){GUARD}+", "", text)
