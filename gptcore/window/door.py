"""The window's application from its first moment; what it shows comes when the model is loaded.

POST /show   brings the window to the front, for a second start: also while it loads, or cannot load

It answers under the names of this machine alone, and no page of another site.

>>> uvicorn.run(Door(load, window.show, "gptcore", home.folder), port=7861)   # doctest: +SKIP
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from starlette.responses import JSONResponse, Response

from gptcore.api.access import Access, Asgi, Receive, Refused, Scope, Send, check_origin, read_json
from gptcore.system.threads import in_thread


class Door:
    """ASGI application that lets all requests but one wait for what `load` returns."""

    def __init__(self, load: Callable[[], Asgi], show: Callable[[], None], title: str, home: Path):
        """`show` brings the window to the front. `home`: whose window it is."""
        self.show, self.title, self.home = show, title, home
        self.loaded = in_thread(load)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            Access().check_host(scope)
            check_origin(scope)
            if scope["path"] == "/show":
                app: Asgi = await self.come_forward(scope, receive)
            else:
                app = await asyncio.wrap_future(self.loaded)
        except Refused as refused:
            app = refused.answer()
        except asyncio.CancelledError:  # the window was closed, and nobody waits any more
            return
        await app(scope, receive, send)

    async def come_forward(self, scope: Scope, receive: Receive) -> Response:
        if await read_json(scope, receive) != str(self.home):
            raise Refused(409, "this is the window of another program")
        self.show()
        return JSONResponse({"model": self.title})
