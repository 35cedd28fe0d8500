"""Sends nonsense to the page and its API, and looks for what must never come back.

    python benchmarks/crowds/fuzz.py [--requests 20000] [--seed 0] [--model models/nano]

A request is a good one with a part replaced, removed or doubled, at one of the addresses that the
page and the API have, or at none. These are failures, printed with their request: a status of 500
or more, a traceback or a path in an answer or in the server's log, an answer that does not end, an
error without words, another session's event in a stream, a server that is not well afterwards.
Exits with 1 if there was any.
"""

import argparse
import asyncio
import copy
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import aiohttp

from benchmarks.crowds.servers import ROOT, address, page

AT_ONCE = 16
ANSWER_SECONDS = 60  # a context full of tokens, with AT_ONCE others
SECRET = re.compile(rf"Traceback|site-packages|{re.escape(str(ROOT))}|File \"")

SETTINGS = [0.5, 5, 50, 1, 0, 1, -1]
TURN = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
CHAT = {
    "model": None, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "seed": 1,
    "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "stream": True, "n": 1, "logprobs": True,
    "top_logprobs": 2, "stream_options": {"include_usage": True},
}  # fmt: skip
TEXT = {"prompt": "Once", "max_tokens": 5, "echo": True, "logprobs": 1, "n": 2, "stop": "."}
IDS = {"prompt": [[1, 2, 3], [4]], "max_tokens": 3, "stream": True}
PAGE = {"data": ["Hi", [TURN], "", *SETTINGS]}
NAMED = {"message": "Hi", "history": [TURN], "temperature": 0, "max_tokens": 5}
JOIN = {"data": [], "fn_index": 0, "session_hash": "s", "trigger_id": 7}
QUEUE = "/gradio_api/queue/"
JUNK: list[Any] = [
    None, True, False, -1, 0, 1, 2**63, 1e308, -0.5, float("nan"), float("inf"), "", "x" * 5000,
    "\ud800", "\x00", "<script>alert(1)</script>", "<|im_start|>system", "../../etc/passwd", [], {},
    [[]], [None], {"path": "/etc/passwd"}, {"role": "system"}, "0", "💥" * 50,
    [copy.deepcopy(TURN) for _ in range(300)],
]  # fmt: skip
RAW = [b"", b"{", b"[" * 50_000, b"\xff\xfe", b'{"data": NaN}', b"null", b"0" * 10_000, b'"', b"{}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="models/nano")
    options = parser.parse_args()
    with tempfile.TemporaryFile("w+") as log:
        with page(options.model, log=log) as server:
            found = asyncio.run(attack(server.port, options.requests, options.seed))
        log.seek(0)
        said = log.read()
    found.failures += [f"log: {part[-900:]}" for part in said.split("Traceback")[1:]]
    print(f"{options.requests:,} requests; statuses {dict(sorted(found.statuses.items()))}; "
          f"{found.n_streams:,} streams; {len(found.failures)} failures")  # fmt: skip
    print(*found.failures[:20], sep="\n")
    return 1 if found.failures else 0


class Findings:
    """What came back: how often each status did, and what must not."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.n_streams = 0

    def check(self, status: int, text: str, request: object) -> None:
        self.statuses[status] += 1
        if status >= 500 or SECRET.search(text):
            self.failures.append(f"{status} {text[:300]!r} of {str(request)[:600]}")


async def attack(port: int, n: int, seed: int) -> Findings:
    found, rng, places = Findings(), random.Random(seed), asyncio.Semaphore(AT_ONCE)
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    base = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(force_close=True)  # no race with the end of an idle one
    async with aiohttp.ClientSession(base, timeout=timeout, connector=connector) as session:
        async with session.get("/config") as answer:
            events = (await answer.json())["dependencies"]

        async def one(number: int) -> None:
            async with places:
                request = draw(rng, number, events)
                try:
                    await send(session, request, number, found)
                except TimeoutError:
                    found.failures.append(f"no end: {str(request)[:600]}")
                except aiohttp.ClientError as error:
                    found.failures.append(f"{error!r}: {str(request)[:600]}")

        await asyncio.gather(*map(one, range(n)))
        good = CHAT | {"stream": False}
        async with session.post("/v1/chat/completions", json=good) as answer:
            found.check(answer.status, await answer.text(), "the last, good request")
            if answer.status != 200:
                found.failures.append("the server is not well afterwards")
    return found


async def send(
    session: aiohttp.ClientSession, request: tuple[str, str, bytes], number: int, found: Findings
) -> None:
    method, path, body = request
    headers = {"Content-Type": "application/json", **address(number)}
    async with session.request(method, path, data=body, headers=headers) as answer:
        is_heartbeat = "heartbeat" in path and answer.status == 200  # it lasts as long as its page
        text = "" if is_heartbeat else await answer.text(errors="replace")
        found.check(answer.status, text, request)
    event = re.search(r'"event_id": ?"(\w+)"', text) if answer.status == 200 else None
    if not event:
        return
    found.n_streams += 1
    is_call = "/call/" in path
    stream = f"{path}/{event[1]}" if is_call else f"{QUEUE}data?session_hash=fuzz{number}"
    async with session.get(stream, headers=address(number)) as answer:
        text = await answer.text()
    found.check(answer.status, text, (request, stream))
    others = set(re.findall(r'"event_id": ?"(\w+)"', text)) - {event[1]}
    if others:
        found.failures.append(f"events of others {others}: {request}")
    if re.search(r'"error": ?null', text):
        found.failures.append(f"an error without words: {text[-200:]} of {str(request)[:600]}")


def draw(rng: random.Random, number: int, events: list[dict]) -> tuple[str, str, bytes]:
    """Return the method, the path and the body of a request."""
    path, body = rng.choice(
        [
            ("/v1/chat/completions", CHAT),
            ("/v1/completions", TEXT),
            ("/v1/completions", IDS),
            ("/gradio_api/call/chat", PAGE),
            ("/gradio_api/call/v2/chat", NAMED),
            (QUEUE + "join", joined(rng, number, events)),
            (QUEUE + "join", joined(rng, number, events)),
            ("/gradio_api/run/predict", JOIN | {"fn_index": 1}),
            ("/gradio_api/cancel", {"session_hash": "x", "fn_index": 0, "event_id": "y"}),
            ("/gradio_api/reset", {"event_id": "x"}),
            (rng.choice(sorted(ADDRESSES)), {}),
        ]
    )
    body = copy.deepcopy(body)
    session = body.get("session_hash")
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        mutate(rng, body)
    if session and "session_hash" in body:
        body["session_hash"] = session  # under which the answer is read
    if path in ADDRESSES or rng.random() < 0.02:
        return rng.choice(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"]), path, b""
    return "POST", path, rng.choice(RAW) if rng.random() < 0.05 else json.dumps(body).encode()


ADDRESSES = {
    "/", "/config", "/v1/models", "/v1/models/x", "/v1/models/%00", "/v1/", "/health", "/metrics",
    "/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/call/chat/nothing",
    "/gradio_api/file=/etc/passwd", "/gradio_api/upload", "/../../etc/passwd", "/%2e%2e/%2e%2e/x",
    "/static/../../x", "/assets/%5c..%5cx", "/gradio_api/queue/data", "/gradio_api/queue/status",
    "/gradio_api/queue/data?session_hash=nobody", "/gradio_api/heartbeat/x", "/gradio_api/app_id",
    "/gradio_api/startup-events", "/theme.css", "/nothing", "/gradio_api/call/draw",
}  # fmt: skip


def joined(rng: random.Random, number: int, events: list[dict]) -> dict[str, Any]:
    """Return the body with which the page's own events join the queue."""
    event = rng.choice(events)
    values = {
        10: ["Hi", [TURN], "", *SETTINGS],
        4: ["Hi", "attention weights", 1, 1],
        3: [[TURN], {"temperature": 0.5, "max_tokens": 5, "seed": 1, "stop": ["x"]}, [300, 301]],
    }
    data = values.get(len(event["inputs"]), [])
    told = {"fn_index": event["id"], "session_hash": f"fuzz{number}"}
    return copy.deepcopy(JOIN | told | {"data": data})


def mutate(rng: random.Random, body: Any) -> None:
    """Replace, remove, double or add a part of a JSON value, anywhere in it."""
    found = [*places(body)]
    if not found:
        return
    holder, key = rng.choice(found)
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif kind == 1:
        holder[rng.choice(["extra", "", "data", "n", "user"])] = copy.deepcopy(rng.choice(JUNK))
    else:
        holder[key] = copy.deepcopy(rng.choice(JUNK))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and the key of every part of a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(inside):
        yield value, key
        if isinstance(part, dict | list):
            yield from places(part)


if __name__ == "__main__":
    sys.exit(main())
