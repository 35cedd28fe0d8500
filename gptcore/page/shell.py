"""What the chat view needs of the server: its files, and the facts of the model.

>>> launch(app_kwargs={"routes": view_routes(facts)}, head=HEAD)       # doctest: +SKIP
"""

from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from gptcore.engine.sampling import SETTINGS
from gptcore.model import OnnxModel
from gptcore.page.parts import default_max_tokens, highest_max_tokens
from gptcore.system.runtime import device_line

VIEW = Path(__file__).parent / "view"
LOOKS = [f"view/looks/{name}.css" for name in ("base", "conversation", "text", "sides")]
HEAD = "".join(f'<link rel="stylesheet" href="{path}">' for path in LOOKS)
HEAD += '<script type="module" src="view/page.js"></script>'
# Gradio's own parts stand below the view's bar, each in its room.
CSS = """
.gradio-container { max-width: 1200px !important; width: 100% !important; margin: 0 auto; }
.gradio-container:has(.room) { padding-top: 56px !important; }
.room:not(.shown) { display: none !important; }
.examples .example { border: 1px solid var(--border-color-primary); border-radius: 8px; }
.status, .device { font-size: 0.85rem; opacity: 0.85; min-height: 1.4em; }
footer .divider { display: none; }
.heat-map .altair { padding: 10px; overflow-x: auto; align-items: safe center !important; }
"""
EXAMPLES = [
    "Hello! Who are you?",
    "My name is Ada.",
    "Tell me a story about a cat.",
    "What is the capital of France?",
]


class Files(StaticFiles):
    """Files that a browser asks for again after an update."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers["Cache-Control"] = "no-cache"
        return response


def view_routes(facts: dict[str, Any]) -> list[BaseRoute]:
    async def tell(request: Request) -> JSONResponse:
        return JSONResponse(facts, headers={"Cache-Control": "no-cache"})

    return [Route("/view/facts.json", tell), Mount("/view", Files(directory=VIEW))]


def view_facts(model: OnnxModel, page: gr.Blocks) -> dict[str, Any]:
    """Return what view/page.js asks for; see view/view.js."""
    columns = (block for block in page.blocks.values() if isinstance(block, gr.Column))
    rooms = [block.elem_id for block in columns if "room" in (block.elem_classes or [])]
    return {
        "name": model.bundle.name,
        "line": device_line(model),
        "block_size": model.config.block_size,
        "settings": settings(model),
        "examples": EXAMPLES,
        "rooms": rooms,
        "fn_index": next(i for i, event in page.fns.items() if event.api_name == "reply"),
    }


def settings(model: OnnxModel) -> list[dict[str, Any]]:
    """Return the settings of a chat in the order in which the view shows them."""
    temperature, *others = [
        {
            "name": setting.name,
            "lowest": setting.lowest,
            "highest": setting.highest,
            "slider": setting.slider,
            "step": setting.step,
            "default": setting.default,
        }
        for setting in SETTINGS
    ]
    most = highest_max_tokens(model)
    max_tokens = {
        "name": "max_tokens",
        "lowest": 1,
        "highest": most,
        "slider": (1, most),
        "step": 1,
        "default": default_max_tokens(model),
    }
    return [temperature, max_tokens, *others]
