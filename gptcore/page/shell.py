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

from gptcore.model import OnnxModel
from gptcore.page.facts import view_facts
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


def page_facts(model: OnnxModel, page: gr.Blocks) -> dict[str, Any]:
    """Return what view/page.js asks for: the view's facts, the rooms, the event for replies."""
    columns = (block for block in page.blocks.values() if isinstance(block, gr.Column))
    return {
        **view_facts(model.bundle),
        "line": device_line(model),
        "rooms": [block.elem_id for block in columns if "room" in (block.elem_classes or [])],
        "fn_index": next(i for i, event in page.fns.items() if event.api_name == "reply"),
    }
