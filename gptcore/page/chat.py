"""The endpoints of the chat: what the chat view asks, and /chat for programs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from gptcore.engine.generate import Request, chat_request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.page.inputs import text_of, to_messages
from gptcore.page.parts import REPLIES, api_texts, default_max_tokens
from gptcore.page.reply import reply_endpoint


def add_chat(model: OnnxModel) -> None:
    """Add the endpoints of the chat, whose view draws itself (page/view)."""
    answering: dict[str, Any] = {"concurrency_limit": REPLIES}
    gr.api(reply_endpoint(model), api_name="reply", api_visibility="private", **answering)
    gr.api(chat_endpoint(model), api_name="chat", **answering)


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
