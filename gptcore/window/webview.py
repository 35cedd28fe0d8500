"""A window by pywebview: the system's own webview (WebView2, WKWebView, WebKitGTK or Qt).

>>> WebView("gptcore", "http://127.0.0.1:7861", home).run()           # doctest: +SKIP
"""

import logging
from typing import Any

from gptcore.window.home import Home

SIZE = {"width": 1200, "height": 860}


def has_webview() -> bool:
    """Return whether pywebview is installed, and finds a toolkit of the system."""
    try:
        from webview.errors import WebViewException
        from webview.guilib import initialize
    except ImportError:
        return False
    logging.getLogger("pywebview").disabled = True  # it tells of each toolkit that is missing
    try:
        initialize()
    except (ImportError, WebViewException):
        return False
    return True


class WebView:
    """The window; it must be made and run in the process's first thread."""

    def __init__(self, title: str, url: str, home: Home):
        import webview

        self.home = home
        webview.settings["ALLOW_DOWNLOADS"] = True  # chats as files
        place: dict[str, Any] = home.known().get("place") or SIZE
        window = webview.create_window(title, url, text_select=True, **place)
        assert window
        self.window, self.asked, self.drift = window, place, (0, 0)
        window.events.loaded += self.settle
        window.events.closing += self.remember

    def settle(self) -> None:
        """See how far the toolkit's places are from those that it was asked for.

        Qt's are within the frame, so that a window would sink by its title at each start.
        """
        window, asked = self.window, self.asked
        if "x" in asked:
            self.drift = window.x - asked["x"], window.y - asked["y"]
        window.events.loaded -= self.settle

    def remember(self) -> None:
        window, (right, down) = self.window, self.drift
        place = {"x": window.x - right, "y": window.y - down}
        self.home.remember(place=place | {"width": window.width, "height": window.height})

    def show(self) -> None:
        self.window.restore()
        self.window.show()

    def run(self) -> None:
        """Show the window until it is closed."""
        import webview

        webview.start(private_mode=False, storage_path=str(self.home.folder / "webview"))

    def close(self) -> None:
        self.window.destroy()
