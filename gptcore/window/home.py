"""What a window keeps between its starts: its address, its size, the folder of its browser.

A browser keeps the chats by the address of their page, so the port of the first start is that of
all later ones.

>>> home = Home(data_folder() / "window")                            # doctest: +SKIP
>>> bound = home.listen()                                              # doctest: +SKIP
"""

import json
import os
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.system.files import remembered, write_json
from gptcore.system.network import listen_here

HOST = "127.0.0.1"
PORTS = range(7861, 7961)  # of a first start; below those that systems give to outgoing connections
SECONDS = 20.0  # for an open window to answer, which may just have started


class Home:
    """A folder of the user's, for one program."""

    def __init__(self, folder: Path):
        self.folder, self.file = folder, folder / "window.json"

    def known(self) -> dict[str, Any]:
        """Return what is remembered; a damaged file counts as none."""
        return remembered(self.file)

    def remember(self, **values: Any) -> None:
        write_json(self.file, self.known() | values)

    def listen(self) -> list[socket.socket]:
        """Return sockets that listen on the port of the last start, the first time on a free one.

        Raises UserError if another program has it, and AlreadyOpen if a window of this home does.
        """
        is_there, port = self.file.exists(), self.known().get("port")
        if type(port) is not int or not (0 < port < 2**16):
            if is_there:
                self.file.unlink(missing_ok=True)  # it is damaged
            return self.first_listen()
        with suppress(OSError):
            return listen_here(port)
        if model := open_model(port, self.folder):
            raise AlreadyOpen(f"the window is open already: http://localhost:{port} ({model})")
        raise UserError(
            f"another program has port {port}, whose address holds the window's chats: end that "
            f"program, or delete {self.file} to begin at another address without the chats"
        )

    def first_listen(self) -> list[socket.socket]:
        for port in PORTS:
            try:
                bound = listen_here(port)
            except OSError:
                continue
            if self.is_first(port):
                return bound
            for each in bound:
                each.close()
            return self.listen()
        raise UserError(f"no port from {PORTS[0]} to {PORTS[-1]} is free: end a program there")

    def is_first(self, port: int) -> bool:
        """Remember a port, unless a window that began at the same time remembers its own."""
        own = self.file.with_name(f"{self.file.name}.{port}")
        write_json(own, {"port": port})
        try:
            os.link(own, self.file)
        except FileExistsError:
            return False
        except OSError:  # a disk without links
            self.remember(port=port)
        finally:
            own.unlink()
        return True


class AlreadyOpen(Exception):
    """There is a window of this home; it was asked to come forward."""


def open_model(port: int, folder: Path) -> str:
    """Ask this home's window to come forward; return its model's name, "" if there is none."""
    with suppress(OSError, HTTPException, ValueError, LookupError, TypeError):
        connection = HTTPConnection(HOST, port, timeout=SECONDS)
        connection.request("POST", "/show", json.dumps(str(folder)))
        return json.loads(connection.getresponse().read())["model"]
    return ""
