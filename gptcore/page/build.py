"""The whole page: its tabs, its styles, and the settings with which Gradio serves it.

>>> build_page(model).launch(**launch_options(Models(model)))  # doctest: +SKIP
"""

from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from gptcore.api.door import Door
from gptcore.api.entry import Entry
from gptcore.api.routes import Api
from gptcore.model import OnnxModel
from gptcore.models import Models
from gptcore.page.chat import chat_tab
from gptcore.page.complete import completion_tab
from gptcore.page.guard.middleware import Guard
from gptcore.page.inspect import inspect_tab
from gptcore.page.translate import translate_tab
from gptcore.translation.onnx import OnnxTranslator

REMEMBERED = 100  # number of visitors whose page is remembered, of up to 0.9 MB each
CONCURRENT = 4  # events of other kinds that are handled at once; others wait in the queue
CSS = """
.gradio-container { max-width: 1200px !important; width: 100% !important; margin: 0 auto; }
.examples .example { border: 1px solid var(--border-color-primary); border-radius: 8px; }
.status, .device { font-size: 0.85rem; opacity: 0.85; min-height: 1.4em; }
footer .divider { display: none; }
.heat-map .altair { padding: 10px; overflow-x: auto; align-items: safe center !important; }
"""


def launch_options(
    models: Models,
    door: Door | None = None,
    entry: Entry | None = None,
) -> dict[str, Any]:
    """Return the arguments of `launch` for the page and its API.

    `door`: the conditions of the API. `entry`: what is asked of every visitor, if anything.
    """
    door = door or Door()
    guard = Middleware(Guard, api=Api(models, door), entry=entry)
    return {
        "theme": gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        "css": CSS,
        "footer_links": ["api"],
        "share": False,
        "quiet": True,
        "strict_cors": True,
        "ssr_mode": False,
        "run_history": False,
        "enable_monitoring": False,
        "state_session_capacity": REMEMBERED,
        "app_kwargs": {"middleware": [guard]},
    }


def build_page(model: OnnxModel, translator: OnnxTranslator | None = None) -> gr.Blocks:
    """Build the page: a chat tab, or text completion for a base model, and the optional tabs."""
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
    return page.queue(max_size=64, default_concurrency_limit=CONCURRENT, api_open=False)


def first_tab(model: OnnxModel) -> None:
    (chat_tab if model.bundle.is_chat else completion_tab)(model)
