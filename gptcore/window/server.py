"""The page's own server, for a window on this machine; it needs no Gradio and starts in less time.

GET  /                  the page
GET  /view/...          the view's files and facts
POST /ask/NAME          what the view asks: a JSON list of values; server-sent events answer
POST /open              an address that a person clicked on, for the system's browser
/v1/, /health, /train/  the API, and Train where it is offered

>>> uvicorn.run(window_app(Models(model)), port=7861)                  # doctest: +SKIP
"""

import asyncio
import inspect
import webbrowser
from collections.abc import AsyncIterator
from html import escape
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from gptcore.api.access import Access, Refused, read_json
from gptcore.api.routes import Api
from gptcore.checks import UserError
from gptcore.models import Models
from gptcore.page.reply import as_json
from gptcore.page.shell import head, view_asks, view_routes
from gptcore.page.train.routes import TrainRoutes
from gptcore.page.train.workbench import Workbench
from gptcore.translation.onnx import OnnxTranslator

LINKS = ("http", "https", "mailto")
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<link rel="icon" href="view/looks/icon.svg">{head}</head>
<body></body>
</html>
"""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
}


def window_app(
    models: Models,
    translator: OnnxTranslator | None = None,
    bench: Workbench | None = None,
) -> Starlette:
    """Return the ASGI application, for behind the door; `bench` is for Train."""
    asks = view_asks(models, translator)
    title = escape(models.names[0])

    def facts(_: Request) -> dict[str, Any]:
        return {"train": bench is not None}

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE.format(title=title, head=head("window.js")), headers=HEADERS)

    async def ask(request: Request) -> Response:
        name, values = request.path_params["name"], await read_json(request.scope, request.receive)
        if name not in asks:
            raise Refused(404, f"this page has no {name!r}")
        known = [*inspect.signature(asks[name]).parameters]
        if not isinstance(values, list) or len(values) != len(known):
            raise Refused(400, f"{name} takes a list of {len(known)} values: {', '.join(known)}")
        return StreamingResponse(events(asks[name](*values)), media_type="text/event-stream")

    async def open_link(request: Request) -> Response:
        address = await read_json(request.scope, request.receive)
        if not isinstance(address, str) or address.partition(":")[0].lower() not in LINKS:
            raise Refused(400, f"only an address of {', '.join(LINKS)} is opened")
        await asyncio.to_thread(webbrowser.open, address)  # which may wait for the browser
        return JSONResponse({})

    routes = [
        Route("/", page),
        *view_routes(models, translator, facts),
        Route("/ask/{name}", ask, methods=["POST"]),
        Route("/open", open_link, methods=["POST"]),
        *([Mount("/train", TrainRoutes(bench))] if bench else []),
        Mount("/", Api(models, Access())),
    ]
    return Starlette(routes=routes, exception_handlers={Refused: lambda _, no: no.answer()})


async def events(answer: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield the events of an answer, and as the last one what is wrong, if something is."""
    try:
        async for text in answer:
            yield f"data: {text}\n\n"
    except UserError as error:
        yield f"data: {as_json(error=str(error))}\n\n"
