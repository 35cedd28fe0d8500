"""A window by pywebview: the system's own webview (WebView2, WKWebView, WebKitGTK or Qt).

>>> WebView("gptcore", "http://127.0.0.1:7861", home).run()           # doctest: +SKIP
"""

import logging
from typing import Any

from gptcore.window.home import Home

SIZE = {"width": 1200, "height": 860}
LEAST, MOST = 200, 20_000  # of each, for a window that can be found again


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


def sound_size(kept: Any) -> dict[str, int]:
    """Return the size that was kept, or the first one if it is damaged."""
    try:
        size = {name: int(kept[name]) for name in SIZE}
    except (TypeError, LookupError, ValueError, OverflowError):
        return SIZE
    return size if all(LEAST <= length <= MOST for length in size.values()) else SIZE


class WebView:
    """The window; it must be made and run in the process's first thread."""

    def __init__(self, title: str, url: str, home: Home):
        import webview

        self.home = home
        webview.settings["ALLOW_DOWNLOADS"] = True  # chats as files
        size = sound_size(home.known().get("size"))
        window = webview.create_window(title, url, text_select=True, **size)
        assert window
        self.window = window
        window.events.closing += self.remember

    def remember(self) -> None:
        """Keep the size, not the place, which may be on a screen that is gone at the next start."""
        self.home.remember(size={"width": self.window.width, "height": self.window.height})

    def show(self) -> None:
        self.window.restore()
        self.window.show()

    def run(self) -> None:
        """Show the window until it is closed."""
        import webview

        webview.start(private_mode=False, storage_path=str(self.home.folder / "webview"))

    def close(self) -> None:
        self.window.destroy()
