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

from gptcore.models import Models
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
    models: Models, translator: OnnxTranslator | None, page: gr.Blocks
) -> dict[str, Any]:
    """Return what view/page.js asks for: the view's facts, and the numbers of the events.

    `models` are those that the view offers: of the first one's kind, and each one's formats.
    """
    by_name = {n: view_facts(f, models.folders[n]) | {"name": n} for n, f in models.facts.items()}
    first = by_name[models.names[0]]
    by_name |= {key: by_name[n] | {"name": key} for key, (n, _) in models.formats().items()}
    return {
        **first,
        "models": [facts for facts in by_name.values() if facts["chat"] == first["chat"]],
        "line": device_line(models.first),
        "api": "?view=api",
        "translator": translator_facts(translator) if translator else None,
        "events": {event.api_name: i for i, event in page.fns.items()},
    }
