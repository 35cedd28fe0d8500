"""The text tab of a base model, which continues a text, and the endpoint /complete."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from threading import Event
from typing import Any

import gradio as gr

from gptcore.checks import UserError
from gptcore.engine.generate import completion_request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.page.inputs import to_settings
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


def completion_tab(model: OnnxModel) -> None:
    """Add text completion, for a model not trained on conversations, and /complete."""
    heading(
        model.bundle.name,
        "A **base model**: it continues your text. It was not trained on "
        "conversations and does not answer questions.",
    )
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            hint = "Write a beginning; the arrow (or Shift+Enter) continues it"
            box = gr.Textbox(placeholder=hint, lines=14, value="", autofocus=True, **IDLE)
            status = status_line()
            gr.Markdown(device_line(model), elem_classes="device")
        with gr.Column(scale=1, min_width=280):
            sliders = settings_panel(model)
    generations, block_size = Generations(), model.config.block_size

    async def respond(request: gr.Request, text: str, *values: Any) -> Updates:
        try:
            settings, stop = to_settings(values, highest_max_tokens(model)), Event()
            async with generations.begin(request.session_hash, stop):
                wanted = await asyncio.to_thread(completion_request, model, text, *settings)
                yield gr.Textbox(**BUSY), "reading ..."
                async for progress in stream(model.engine, wanted, stop):
                    yield text + progress.text, progress.line(block_size)
                yield gr.Textbox(**IDLE), gr.skip()
        except UserError as error:
            yield gr.Textbox(**IDLE), f"⚠ {error}"

    def stop_it(request: gr.Request) -> None:
        generations.stop(request.session_hash)

    box.submit(respond, [box, *sliders], [box, status], **STREAMED)
    box.stop(stop_it, queue=False, **HIDDEN)
    gr.api(completion_endpoint(model), api_name="complete", concurrency_limit=REPLIES)


def completion_endpoint(model: OnnxModel) -> Callable:
    """Return the function of the API's /complete."""
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
        async for more in api_texts(model, values, partial(completion_request, model, text)):
            yield more

    return continue_text
