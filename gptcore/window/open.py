"""Opens the page in a window of its own, and ends with it: `gptcore --window`.

>>> open_window(load, Home(data_folder() / "window"), "gptcore")      # doctest: +SKIP

The window opens at once. Its first request waits until the model is loaded, which takes less time
than a browser needs to start.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

from gptcore.checks import UserError
from gptcore.window.browser import Browser, find_browser
from gptcore.window.home import AlreadyOpen, Home
from gptcore.window.webview import WebView, has_webview

if TYPE_CHECKING:
    import uvicorn

    from gptcore.api.access import Asgi

Load = Callable[[], "Asgi"]  # the window's application


def open_window(load: Load, home: Home, title: str) -> int:
    """Serve the application that `load` returns until its window is closed; return the exit code.

    Raises UserError if no window can be opened, or as `load` does.
    """
    check_display()
    try:
        sockets = home.listen()
    except AlreadyOpen as already:
        print(already)
        return 0
    with ExitStack() as held:
        for listening in sockets:
            held.enter_context(listening)
        # By name: under a key with dots, which an address has, Chromium finds no window's place.
        url = f"http://localhost:{sockets[0].getsockname()[1]}"
        window = new_window(title, url, home)
        print(f"{url} (its window closes it)", flush=True)
        serving = Serving(load, window, sockets, title, home)
        serving.start()
        try:
            window.run()
        finally:
            serving.end()
    if serving.error:
        raise serving.error
    return 0


def check_display() -> None:
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise UserError(
            "there is no display for a window (neither DISPLAY nor WAYLAND_DISPLAY is set): start "
            "it in a desktop session, or serve the page to a browser: gptcore, without --window"
        )


def new_window(title: str, url: str, home: Home) -> WebView | Browser:
    """Return the system's webview, or a browser in its place. Raises UserError."""
    if has_webview():
        return WebView(title, url, home)
    return Browser(find_browser(), url, home.folder / "browser")


class Serving(Thread):
    """The server, in a thread of its own: a webview needs the process's first one."""

    def __init__(
        self,
        load: Load,
        window: WebView | Browser,
        sockets: list[socket.socket],
        title: str,
        home: Home,
    ):
        super().__init__(name="server", daemon=True)
        self.load, self.window, self.sockets = load, window, sockets
        self.title, self.home = title, home
        self.error: Exception | None = None
        self.server: uvicorn.Server | None = None

    def run(self) -> None:
        try:
            import uvicorn

            from gptcore.window.door import Door

            app = Door(self.application, self.window.show, self.title, self.home.folder)
            # What "auto" would choose may not be installed, or not be in an application folder.
            config = uvicorn.Config(
                app, http="h11", loop="asyncio", ws="none", lifespan="off", log_level="warning"
            )
            self.server = uvicorn.Server(config)
            self.server.run(sockets=self.sockets)
        except Exception as error:
            self.fail(error)

    def application(self) -> "Asgi":
        """Return what the window shows: where nothing can be served, the reason."""
        from starlette.responses import PlainTextResponse

        try:
            return self.load()
        except UserError as error:
            self.error = error
            return PlainTextResponse(f"error: {error}", 500)
        except Exception as error:
            self.fail(error)
            return PlainTextResponse("an error of this program", 500)

    def fail(self, error: Exception) -> None:
        """Close the window for a mistake of this program, which the first thread raises."""
        self.error = error
        self.window.close()

    def end(self) -> None:
        """End the server; if it still loads a model, the process ends once that is loaded."""
        if self.server:
            self.server.should_exit = self.server.force_exit = True
            self.join()
