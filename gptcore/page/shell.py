"""What the chat view needs of a server: its files, the facts of the model, and what answers it.

>>> head("page.js").endswith('<script type="module" src="view/page.js"></script>')
True
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from gptcore.facts import ModelFacts
from gptcore.model import OnnxModel, device_line
from gptcore.models import Models
from gptcore.page.facts import view_facts
from gptcore.page.inspect import inspect_endpoint
from gptcore.page.reply import reply_endpoint
from gptcore.page.translate import crossing_endpoint, translation_endpoint, translator_facts
from gptcore.translation.onnx import OnnxTranslator

Ask = Callable[..., AsyncIterator[str]]

VIEW = Path(__file__).parent / "view"
LOOKS = [f"view/looks/{name}.css" for name in ("base", "conversation", "text", "sides", "rooms")]


def head(module: str) -> str:
    """Return the tags of a page that shows the view; `module` is what fetches its replies."""
    looks = "".join(f'<link rel="stylesheet" href="{path}">' for path in LOOKS)
    return f'{looks}<script type="module" src="view/{module}"></script>'


class Files(StaticFiles):
    """Files that a browser asks for again after an update."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers["Cache-Control"] = "no-cache"
        return response


def view_asks(
    models: Models, translator: OnnxTranslator | None, asker: Callable[[], str] = lambda: ""
) -> dict[str, Ask]:
    """Return what answers the view, by the names that view/host.js asks for; it raises UserError.

    `asker` returns who is asking.
    """
    asks = {"reply": reply_endpoint(models, asker), "inspect": inspect_endpoint(models)}
    if translator:
        asks["translation"] = translation_endpoint(translator, asker)
        asks["crossing"] = crossing_endpoint(translator.bundle)
    return asks


def view_routes(
    models: Models, translator: OnnxTranslator | None, own: Callable[[Request], dict[str, Any]]
) -> list[BaseRoute]:
    """Return the routes of the view's files, and of the facts of the model that a request names.

    `own` returns the facts of the server.
    """

    def tell(request: Request) -> JSONResponse:
        # Not async: it looks into folders, for which nobody else is to wait.
        facts = page_facts(models, translator, request.query_params.get("model")) | own(request)
        return JSONResponse(facts, headers={"Cache-Control": "no-cache"})

    return [Route("/view/facts.json", tell), Mount("/view", Files(directory=VIEW))]


def page_facts(
    models: Models, translator: OnnxTranslator | None, name: str | None = None
) -> dict[str, Any]:
    """Return what view/host.js asks for.

    `name`: the model that the view opens with; by default the first. `models` are those of its
    kind that the view offers, in each format, and `others` the names of those of the other kind,
    with which the view opens anew. Models exported since the page began are included.
    """
    models.look()
    names = models.names  # before `offered`: another request's look may add some meanwhile
    by_name = {
        key: view_facts(offer.facts, offer.folder)
        | {"name": key, "line": line_of(offer.facts, models.open.get(key))}
        for key, (offer, _) in models.offered.items()
    }
    first = by_name.get(name or "", by_name[names[0]])
    others = [n for n in names if by_name[n]["chat"] != first["chat"]]
    return {
        **first,
        "models": [facts for facts in by_name.values() if facts["chat"] == first["chat"]],
        "others": others,
        "schemas": True,  # replies may be bound to one
        "translator": translator_facts(translator) if translator else None,
    }


def line_of(facts: ModelFacts, opened: OnnxModel | None) -> str:
    """Return a line about a model's size, and what it runs on if it is open."""
    if opened:
        return device_line(opened)
    return f"{facts.parameters:,} parameters · opened by the first reply"
