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
from gptcore.page.translate import translator_facts
from gptcore.system.runtime import device_line
from gptcore.translation.onnx import OnnxTranslator

VIEW = Path(__file__).parent / "view"
LOOKS = [f"view/looks/{name}.css" for name in ("base", "conversation", "text", "sides", "rooms")]
HEAD = "".join(f'<link rel="stylesheet" href="{path}">' for path in LOOKS)
HEAD += '<script type="module" src="view/page.js"></script>'


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


def page_facts(
    model: OnnxModel, translator: OnnxTranslator | None, page: gr.Blocks
) -> dict[str, Any]:
    """Return what view/page.js asks for: the view's facts, and the numbers of the events."""
    return {
        **view_facts(model.bundle),
        "line": device_line(model),
        "translator": translator_facts(translator) if translator else None,
        "events": {event.api_name: i for i, event in page.fns.items()},
    }
