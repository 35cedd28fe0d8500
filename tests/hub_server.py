"""A server that speaks the part of the Hub's API that downloads need, and one for large files."""

import hashlib
import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = ("tokenizer.json", ".safetensors", ".bin")  # ends of names: kept as the Hub keeps LFS files
CHUNK = 1 << 16


class Hub:
    """Files of repositories by name. Large ones are led on to another host, as the Hub does."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.stated: dict[str, bytes] = {}  # contents that the list tells of instead, by name
        self.gated: set[str] = set()
        self.page = b""  # what every address answers instead, if it is set
        self.faults: list[str] = []  # what is wrong with each of the next large answers
        self.asked: list[tuple[str, str, str]] = []  # path, Range, Authorization
        self.large = start(Large, self)
        self.http = start(Small, self)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def stop(self) -> None:
        for server in (self.http, self.large):
            server.shutdown()
            server.server_close()

    def paths(self, end: str = "") -> list[str]:
        return [path for path, _, _ in self.asked if path.endswith(end)]

    def commit(self, repo: str) -> str:
        hashes = {name: hash(content) for name, content in self.files[repo].items()}
        return hashlib.sha1(repr(sorted(hashes.items())).encode()).hexdigest()

    def describe(self, repo: str) -> dict:
        siblings = []
        for name, content in self.files[repo].items():
            content = self.stated.get(name, content)
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry = {"rfilename": name, "size": len(content), "blobId": blob}
            if name.endswith(LARGE):
                sha256 = hashlib.sha256(content).hexdigest()
                entry |= {"blobId": "0" * 40}  # the pointer's
                entry |= {"lfs": {"sha256": sha256, "size": len(content), "pointerSize": 134}}
            siblings.append(entry)
        gated = "manual" if repo in self.gated else False
        return {"id": repo, "sha": self.commit(repo), "gated": gated, "siblings": siblings}


class Handler(BaseHTTPRequestHandler):
    hub: Any

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def note(self) -> str:
        path = self.path.split("?")[0]
        asked = self.headers.get("Range", ""), self.headers.get("Authorization", "")
        self.hub.asked.append((path, *asked))
        return path


class Small(Handler):
    """The Hub itself."""

    def do_GET(self) -> None:
        hub, path = self.hub, self.note()
        token = self.headers.get("Authorization", "")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repo = "/".join(parts[:2])
        if hub.page:
            return self.answer(200, hub.page)
        if token == "Bearer wrong":
            message = "Invalid credentials in Authorization header"
            return self.answer(401, b"{}", X_Error_Message=message)
        if repo == "some/broken":
            return self.answer(500, b'{"error": "its own\\nwords"}')
        if repo not in hub.files:
            return self.answer(401, b"{}", X_Error_Code="RepoNotFound")
        is_list = path.startswith("/api/") and not path.endswith("/auth-check")
        if repo in hub.gated and not token and not is_list:
            return self.answer(401, b"{}", X_Error_Code="GatedRepo")
        if path.startswith("/api/"):
            return self.answer(200, json.dumps(hub.describe(repo)).encode() if is_list else b"{}")
        name = parts[-1]
        assert parts[2:4] == ["resolve", hub.commit(repo)]
        if name.endswith(LARGE):
            place = f"http://127.0.0.1:{hub.large.server_port}/{repo}/{name}"
            return self.answer(302, b"", Location=place)
        return self.answer(200, hub.files[repo][name])


class Large(Handler):
    """The host of large files, which answers ranges, and breaks off where a fault says so."""

    def do_GET(self) -> None:
        *repo, name = self.note().strip("/").split("/")
        body = self.hub.files["/".join(repo)][name]
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        start = 0
        if self.headers.get("If-Range") == tag:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        fault = self.hub.faults.pop(0) if self.hub.faults else ""
        self.wfile.write(body[start : start + CHUNK + 50] if fault == "breaks" else body[start:])
        self.close_connection = True


def start(kind: type[Handler], hub: object) -> ThreadingHTTPServer:
    handler = type(kind.__name__, (kind,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
    return server
