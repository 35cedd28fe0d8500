"""What the tabs share: styles, the sliders, and the generator behind an API call."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import Any

import gradio as gr

from gptcore.checks import UserError
from gptcore.engine.generate import Request
from gptcore.engine.sampling import SETTINGS, Sampling, Setting
from gptcore.model import OnnxModel
from gptcore.page.inputs import to_settings
from gptcore.page.streaming import stream

IDLE: dict[str, Any] = {"show_label": False, "submit_btn": True, "stop_btn": False}
BUSY: dict[str, Any] = {"submit_btn": False, "stop_btn": True}
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
REPLIES = 32  # replies to one kind of event that are written at once; others wait in the queue
STREAMED: dict[str, Any] = HIDDEN | {"concurrency_limit": REPLIES}
LONGEST_TEXT = 1000  # tokens that a base model generates at most in one call
Updates = AsyncIterator[tuple]  # new values of the page's components


def heading(name: str, text: str) -> None:
    """Add a model's name, in which no character is an instruction to the page, and a line."""
    plain = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(name.split()))
    gr.Markdown(f"# {plain}\n{text}", latex_delimiters=[])


def status_line(name: str = "status") -> gr.Markdown:
    """Add the line for statistics and errors, which may quote a visitor: no formulas."""
    return gr.Markdown(elem_id=name, elem_classes="status", latex_delimiters=[])


def settings_panel(model: OnnxModel) -> list[gr.components.Component]:
    """Build the side panel's controls, in the order in which `to_settings` takes their values.

    Controls that are rarely needed are in a folded part.
    """
    temperature, *others = SETTINGS
    highest = highest_max_tokens(model)
    shown = [
        control(temperature),
        gr.Slider(1, highest, default_max_tokens(model), step=1, label="Max tokens"),
    ]
    with gr.Accordion("More settings", open=False):
        folded = [control(setting) for setting in others]
    return [*shown, *folded]


def control(setting: Setting) -> gr.components.Component:
    """Build a slider, or a number field if the setting has no slider."""
    told: dict[str, Any] = {"label": setting.label, "info": setting.info, "step": setting.step}
    if setting.slider is None:
        return gr.Number(setting.default, precision=0, **told)
    return gr.Slider(*setting.slider, setting.default, **told)


def default_max_tokens(model: OnnxModel) -> int:
    return min(256, highest_max_tokens(model) // 2)


def highest_max_tokens(model: OnnxModel) -> int:
    """Return the upper limit of max_tokens; only a base model may exceed its context."""
    within = model.config.block_size - 1
    return within if model.bundle.is_chat else max(within, LONGEST_TEXT)


async def api_texts(
    model: OnnxModel,
    values: tuple,
    begin: Callable[[Sampling, int], Request],
) -> AsyncIterator[str]:
    """Yield the growing reply of an API call; a UserError is sent to the caller as a message."""
    try:
        settings = to_settings(values, highest_max_tokens(model))
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
