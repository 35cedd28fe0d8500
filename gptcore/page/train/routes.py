"""The addresses of Train, for a person at this machine alone: never through a proxy.

GET  /train/state             what there is, as workbench.py describes it
GET  /train/report            the report of the run
PUT  /train/texts/NAME        a text, as the body
POST /train/ACTION            fetch, look, plan, train, export, stop, remove or clear, with JSON

>>> TrainRoutes(bench)                                                # doctest: +SKIP
"""

import asyncio
import tempfile
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response

from gptcore.api.access import Receive, Refused, Scope, Send, check_origin, read_json
from gptcore.checks import UserError
from gptcore.page.train.workbench import KINDS, Workbench
from gptcore.system.network import is_loopback

PREFIX = "/train/"
# What proxies and tunnels add; a request of this machine's own browser has none of it.
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_of_this_machine(scope: Scope) -> bool:
    """Return whether a request comes from this machine, and no proxy has forwarded it."""
    headers, client = Headers(scope=scope), scope.get("client") or ("",)
    return is_loopback(client[0]) and not any(name in headers for name in FORWARDED)


def check_here(scope: Scope) -> None:
    """Raise Refused unless a person at this machine asks, from this page."""
    if not is_of_this_machine(scope):
        raise Refused(403, "only this machine itself may train: open the page on it")
    check_origin(scope)


class TrainRoutes:
    """ASGI application of the addresses below /train/."""

    def __init__(self, bench: Workbench):
        self.bench = bench

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; raises Refused."""
        check_here(scope)
        try:
            answer = await self.answer(Request(scope, receive), scope["method"])
        except UserError as error:
            answer = JSONResponse({"detail": str(error)}, 400)
        except OSError as error:  # a full disk
            answer = JSONResponse({"detail": str(error)}, 507)
        await answer(scope, receive, send)

    async def answer(self, request: Request, method: str) -> Response:
        bench, action = self.bench, request.scope["path"].removeprefix(PREFIX)
        if (method, action) == ("GET", "state"):
            await asyncio.to_thread(bench.list_datasets)
        elif (method, action) == ("GET", "report"):
            return report(bench.runs / bench.settings()["name"])
        elif method == "PUT" and action.startswith("texts/"):
            await take_text(bench, action.removeprefix("texts/"), request)
        elif method == "POST":
            asked = await read_json(request.scope, request.receive)
            if not isinstance(asked, dict):
                raise UserError("send a JSON object")
            await asyncio.to_thread(act, bench, action, asked)
        else:
            raise Refused(404, "Train has no such address")
        return JSONResponse(await asyncio.to_thread(bench.state))


def act(bench: Workbench, action: str, asked: dict) -> None:
    """Do what a person asks for. Raises UserError and Refused."""
    if action in KINDS:
        bench.begin(action, asked)
    elif action == "stop":
        bench.stop()
    elif action == "remove":
        bench.remove(str(asked.get("name")))
    elif action == "clear":
        bench.clear(keeps=asked.get("keeps") is True)
    else:
        raise Refused(404, "Train has no such address")


async def take_text(bench: Workbench, name: str, request: Request) -> None:
    """Write a text to the disk as it arrives. Raises UserError if it is too long."""
    path, most = bench.room_for(name)
    # A name that no text begins with, and no other upload of this name has.
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".")
    n_bytes = 0
    try:
        with open(handle, "wb") as file:
            async for piece in request.stream():
                n_bytes += len(piece)
                check_size(path, n_bytes, most)
                await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(keep, bench, Path(part), name)
    except ClientDisconnect:
        raise UserError(f"{path.name} did not arrive whole") from None
    finally:
        Path(part).unlink(missing_ok=True)


def keep(bench: Workbench, part: Path, name: str) -> None:
    """Put a text that has arrived in its place. Raises UserError if there is none any more."""
    with bench.after_look():  # a command may have begun meanwhile, and other texts have arrived
        path, most = bench.room_for(name)
        check_size(path, part.stat().st_size, most)
        part.replace(path)
        bench.changed()


def check_size(path: Path, n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise UserError(
            f"{path.name} is too large: all texts together may have 500 MB; train on the command "
            f"line, where there is no limit"
        )


def report(run: Path) -> Response:
    if not (run / "report.html").is_file():
        raise Refused(404, "there is no report yet: the first evaluation writes it")
    return FileResponse(run / "report.html")
