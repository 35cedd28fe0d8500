"""What the rooms and the endpoints share: headings, limits, the generator behind an API call."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import Any

import gradio as gr

from gptcore.checks import UserError
from gptcore.engine.generate import Request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.page.facts import highest_max_tokens
from gptcore.page.inputs import to_settings
from gptcore.page.streaming import stream

HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
REPLIES = 32  # replies to one kind of event that are written at once; others wait in the queue


def heading(name: str, text: str) -> None:
    """Add a model's name, in which no character is an instruction to the page, and a line."""
    plain = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(name.split()))
    gr.Markdown(f"# {plain}\n{text}", latex_delimiters=[])


def status_line(name: str = "status") -> gr.Markdown:
    """Add the line for statistics and errors, which may quote a visitor: no formulas."""
    return gr.Markdown(elem_id=name, elem_classes="status", latex_delimiters=[])


async def api_texts(
    model: OnnxModel,
    values: tuple,
    begin: Callable[[Sampling, int], Request],
) -> AsyncIterator[str]:
    """Yield the growing reply of an API call; a UserError is sent to the caller as a message."""
    try:
        settings = to_settings(values, highest_max_tokens(model.bundle))
        request = await asyncio.to_thread(begin, *settings)
        async for progress in stream(model.engine, request, Event()):
            yield progress.text
    except UserError as error:
        raise gr.Error(str(error), print_exception=False) from None


def index_of(value: float | None, n: int) -> int:
    """Convert a control's value from 1 to n to an index; an empty field means the first."""
    return min(max(int(value or 1), 1), n) - 1


def shown(token: str) -> str:
    """Return a token with visible white space."""
    return token.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
