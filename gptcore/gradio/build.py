"""The whole page: its endpoints, and the settings with which Gradio serves it.

>>> launch_page(models, server_port=7860)                             # doctest: +SKIP
"""

import os
from functools import partial
from typing import Any

import gradio as gr
import gradio.routes
import uvicorn
from gradio.route_utils import CustomCORSMiddleware
from starlette.middleware import Middleware
from starlette.requests import Request

from gptcore.api.access import Access, Receive, Scope, Send
from gptcore.api.login import Login
from gptcore.api.protocol import Config
from gptcore.api.routes import PATHS as API_PATHS
from gptcore.api.routes import Api
from gptcore.gradio.endpoints import add_endpoints
from gptcore.gradio.guard.middleware import Guard
from gptcore.models import Models
from gptcore.page.shell import head, view_routes
from gptcore.page.train.routes import TrainRoutes, is_of_this_machine
from gptcore.page.train.workbench import Workbench
from gptcore.translation.onnx import OnnxTranslator

REMEMBERED = 100  # number of visitors whose page is remembered, of up to 0.9 MB each
# Else Gradio makes a table of the last 10,000 events after each one, which nobody sees.
NO_STATISTICS = {
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000",
    "GRADIO_ANALYTICS_MAX_EVENTS": "1",
}
# Gradio looks for a new event every millisecond: 6 % of a core, also when nobody is here.
IDLE_SECONDS = 0.02
CONCURRENT = 4  # events of other kinds that are handled at once; others wait in the queue


class Cors(CustomCORSMiddleware):
    """Gradio's handling of pages of other sites, except where the API has its own (--cors).

    Gradio's class stands before all other middleware, and admits every page if the server has a
    name. A page that asks for a link or a password (`is_locked`) admits none. This class replaces
    Gradio's by name because launch() has no setting for it (Gradio 6.31): only a page that is
    mounted in an application with Starlette's CORSMiddleware goes without.
    """

    def __init__(self, *values: Any, is_locked: bool, **named: Any):
        super().__init__(*values, **named)
        self.is_locked = is_locked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_locked or scope.get("path", "").startswith(API_PATHS):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def build_page(models: Models, translator: OnnxTranslator | None, access: Access) -> gr.Blocks:
    """Build the page: the endpoints that its view asks; the view draws itself (page/view)."""
    os.environ.update(NO_STATISTICS)  # read when the queue is made
    with gr.Blocks(title=f"{models.names[0]} · gptcore", analytics_enabled=False) as page:
        add_endpoints(models, translator, access)
    page.queue(max_size=64, default_concurrency_limit=CONCURRENT, api_open=False)
    page._queue.sleep_when_free = IDLE_SECONDS
    return page


def launch_page(
    models: Models,
    translator: OnnxTranslator | None = None,
    bench: Workbench | None = None,
    access: Access | None = None,
    login: Login | None = None,
    **own: Any,
) -> gr.Blocks:
    """Serve the page and the API, and return the page; `own` are arguments of Gradio's `launch`.

    `bench`: for Train, if this page offers it. `access`: the conditions of the API. `login`: what
    is asked of every visitor, if anything.
    """
    access = access or Access()
    page = build_page(models, translator, access)

    def facts(request: Request) -> dict[str, Any]:
        return {
            "api": "?view=api",
            "events": {event.api_name: i for i, event in page.fns.items()},
            "train": bench is not None and is_of_this_machine(request.scope),
        }

    # as with Cors, launch() has no setting for it
    uvicorn.Config = partial(Config, behind_proxy=access.behind_proxy)  # type: ignore
    gradio.routes.CustomCORSMiddleware = partial(Cors, is_locked=login is not None)  # type: ignore
    train = TrainRoutes(bench) if bench else None
    guard = Middleware(Guard, api=Api(models, access), login=login, train=train)
    page.launch(
        theme=gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        head=head("page.js"),
        footer_links=["api"],
        share=False,
        quiet=True,
        _frontend=False,  # else it gives up if a busy machine takes 3 s to answer it
        strict_cors=True,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        state_session_capacity=REMEMBERED,
        app_kwargs={"middleware": [guard], "routes": view_routes(models, translator, facts)},
        **own,
    )
    return page
