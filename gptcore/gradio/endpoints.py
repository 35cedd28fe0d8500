"""The endpoints: what the view asks, and /chat, /complete and /translate for programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial, wraps
from inspect import getdoc
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from gptcore.api.access import Access
from gptcore.checks import UserError
from gptcore.engine.generate import Request, chat_request, completion_request
from gptcore.engine.inputs import text_of, to_messages, to_settings
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.models import Models
from gptcore.page.facts import highest_max_tokens, usual_settings
from gptcore.page.shell import Ask, view_asks
from gptcore.page.streaming import stream
from gptcore.page.translate import BEAMS, fairly_translated
from gptcore.translation.onnx import OnnxTranslator

# These share out the model's places among visitors themselves, so Gradio lets many events in.
SHARING = ("reply", "chat", "complete", "translation", "translate")
MOST_SHARING = 32  # events of one of these at once; further ones wait in Gradio's queue
Asker = Callable[[], str]


def add_endpoints(models: Models, translator: OnnxTranslator | None, access: Access) -> None:
    """Add the endpoints of the view, and those for programs."""
    asker = partial(visitor_of_event, access)
    is_chat = models.offers[models.names[0]].facts.chat
    answer = chat_endpoint if is_chat else completion_endpoint
    public = {"chat" if is_chat else "complete": answer(models, asker)}
    if translator:
        public["translate"] = translate_endpoint(translator, asker)
    for name, ask in (view_asks(models, translator, asker) | public).items():
        gr.api(
            with_gradio_errors(ask),
            api_name=name,
            # Gradio shows no more than the first lines of a docstring by itself.
            api_description=getdoc(ask),
            api_visibility="public" if name in public else "private",
            concurrency_limit=MOST_SHARING if name in SHARING else "default",
        )


def visitor_of_event(access: Access) -> str:
    """Return who caused the event that is handled just now; "" for this program itself."""
    event = LocalContext.request.get(None)
    return access.asker(event.request.scope) if event and event.request else ""


def with_gradio_errors(endpoint: Ask) -> Ask:
    """Return an endpoint whose UserError Gradio sends to the caller as a message."""

    @wraps(endpoint)
    async def telling(*values: Any, **named: Any) -> AsyncIterator[str]:
        try:
            async for text in endpoint(*values, **named):
                yield text
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return telling


def chat_endpoint(models: Models, asker: Asker) -> Callable:
    """Return the function of the API's /chat; its signature and docstring are the API's."""
    name = models.names[0]
    usual = usual_settings(models.offers[name].facts)

    async def answer(
        message: str,
        history: list[dict[str, Any]] | None = None,
        system_prompt: str = "",
        temperature: float = usual["temperature"],
        max_tokens: int = usual["max_tokens"],
        top_k: int = usual["top_k"],
        top_p: float = usual["top_p"],
        min_p: float = usual["min_p"],
        repetition_penalty: float = usual["repetition_penalty"],
        seed: int = usual["seed"],
    ) -> AsyncIterator[str]:
        """Answer a message; what arrives is the growing reply.

        Parameters:
            message: what the user says
            history: the messages before, each {"role": "user" or "assistant", "content": text}
            system_prompt: what the model is told before the conversation
            temperature: higher gives more surprising replies; 0 always takes the likeliest token
            max_tokens: the longest reply, in tokens
            top_k: only the k likeliest tokens are drawn from; 0 means all
            top_p: only the likeliest tokens whose probabilities sum to p; 1 means all
            min_p: only tokens at least this fraction as likely as the likeliest; 0 means all
            repetition_penalty: above 1 makes what was said less likely
            seed: the same seed gives the same reply; -1 means random
        """
        values = dict(locals())  # the settings among the parameters are read by their names
        model = await models.get(name)

        def begin(sampling: Sampling, max_tokens: int) -> Request:
            told = text_of(system_prompt, "system_prompt")
            system = [{"role": "system", "content": told}] if told.strip() else []
            earlier = to_messages([] if history is None else history)
            asked = {"role": "user", "content": text_of(message)}
            return chat_request(model, [*system, *earlier, asked], sampling, max_tokens)

        async for text in api_texts(model, asker(), values, begin):
            yield text

    return answer


def completion_endpoint(models: Models, asker: Asker) -> Callable:
    """Return the function of the API's /complete."""
    name = models.names[0]
    usual = usual_settings(models.offers[name].facts)

    async def continue_text(
        text: str,
        temperature: float = usual["temperature"],
        max_tokens: int = usual["max_tokens"],
        top_k: int = usual["top_k"],
        top_p: float = usual["top_p"],
        min_p: float = usual["min_p"],
        repetition_penalty: float = usual["repetition_penalty"],
        seed: int = usual["seed"],
    ) -> AsyncIterator[str]:
        """Continue a text; what arrives is the growing continuation.

        Parameters:
            text: the beginning; of a long one the model reads the end
            temperature: higher gives more surprising text; 0 always takes the likeliest token
            max_tokens: the longest continuation, in tokens
            top_k: only the k likeliest tokens are drawn from; 0 means all
            top_p: only the likeliest tokens whose probabilities sum to p; 1 means all
            min_p: only tokens at least this fraction as likely as the likeliest; 0 means all
            repetition_penalty: above 1 makes what was written less likely
            seed: the same seed gives the same text; -1 means random
        """
        values = dict(locals())  # the settings among the parameters are read by their names
        model = await models.get(name)
        begin = partial(completion_request, model, text_of(text, "text"))
        async for more in api_texts(model, asker(), values, begin):
            yield more

    return continue_text


async def api_texts(
    model: OnnxModel, asker: str, values: dict[str, Any], begin: Callable[[Sampling, int], Request]
) -> AsyncIterator[str]:
    """Yield the growing reply of an API call. Raises UserError."""
    settings = to_settings(values, highest_max_tokens(model.bundle.facts))
    request = await asyncio.to_thread(begin, *settings)
    async for progress in stream(model.engine, request, asker):
        yield progress.text


def translate_endpoint(model: OnnxTranslator, asker: Asker) -> Callable:
    """Return the function of the API's /translate; it yields the growing text, line by line."""
    translated = fairly_translated(model, asker)

    async def translate_text(text: str, beams: int = BEAMS) -> AsyncIterator[str]:
        """Translate each line of a text; what arrives is the growing translation.

        Parameters:
            text: the sentences, each on a line of its own
            beams: how many translations of a sentence are followed at once; 1 is greedy
        """
        found: list[str] = []
        async for result in translated(text, beams):
            found.append(result.text)
            yield "\n".join(found)

    return translate_text
