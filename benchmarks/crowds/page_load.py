"""Many users of the page's queue: replies per second, of this checkout and of others, in turns.

    python benchmarks/crowds/page_load.py [CHECKOUT ...] [--users 1 8] [--seconds 20] [--rounds 3]

A checkout is a folder with another state of this project (`git worktree add ../before REVISION`).
Each serves the same model. Its users ask through /gradio_api/call/chat, as programs do, and as its
own page does. They are in a process of their own, and ask again as soon as they have a reply. Of
each row the median round is printed. The processor time hardly depends on other programs.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import aiohttp

from benchmarks.crowds.load import ASKED
from benchmarks.crowds.servers import ROOT, Server, address, page

WAYS = ("/call/chat", "its own page")
SETTINGS = (0.7, 100, 50, 1, 0, 1)  # temperature, max_tokens, top_k, top_p, min_p, penalty


class Result(NamedTuple):
    """What the users of one turn saw."""

    replies: float  # per second
    first: float  # median seconds until the first event that brings something
    events: float  # of a reply
    cpu: float  # the server's, in milliseconds, of a reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="models/default")
    parser.add_argument("--variant", default="q8")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:  # the users' own process
        print(json.dumps(asyncio.run(crowd(**json.loads(options.client)))))
        return
    model = str((ROOT / options.model).resolve())
    print("| through | users | checkout | replies/s | first text | events a reply | "
          "processor time a reply |\n|" + "---|" * 7)  # fmt: skip
    with ExitStack() as stack:
        folders = [ROOT, *options.checkouts]
        more = ("--variant", options.variant)
        servers = [stack.enter_context(page(model, *more, root=folder)) for folder in folders]
        for way in WAYS:
            for users in options.users:
                rounds = [
                    [ask(server, way, users, options.seconds) for server in servers]
                    for _ in range(options.rounds)
                ]
                for folder, results in zip(folders, zip(*rounds)):
                    print_row(way, users, folder, results)


def ask(server: Server, way: str, users: int, seconds: float) -> Result:
    """Let users ask, in a process of their own."""
    wanted = {"port": server.port, "way": way, "users": users, "seconds": seconds}
    command = [sys.executable, __file__, "--client", json.dumps(wanted)]
    before = cpu_seconds(server)
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    replies, first, n_events, n_asked = json.loads(told.stdout)
    cpu = cpu_seconds(server) - before
    return Result(replies, first, n_events / n_asked, 1000 * cpu / n_asked)


def cpu_seconds(server: Server) -> float:
    """Return the processor time that a server has taken so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def crowd(port: int, way: str, users: int, seconds: float) -> tuple[float, float, int, int]:
    """Let `users` ask for so long, after a second that is not counted.

    Returns replies per second, the first text's median time, and numbers of events and replies.
    """
    first: list[float] = []
    n_asked = n_counted = n_events = 0
    base, connector = f"http://127.0.0.1:{port}", aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base, connector=connector) as session:
        async with session.get("/config") as answer:
            events = (await answer.json())["dependencies"]
        started = time.perf_counter() + 1.0
        ended = started + seconds

        async def user(number: int) -> None:
            nonlocal n_asked, n_counted, n_events
            turn = 0
            while (asked := time.perf_counter()) < ended:
                turn += 1
                headers = address(random.getrandbits(24))  # one may join so many times a minute
                values = [ASKED[(number + turn) % len(ASKED)], [], "", *SETTINGS, number + turn]
                join, body = question(way, events, values)
                async with session.post(join, json=body, headers=headers) as answer:
                    event_id = (await answer.json())["event_id"]
                listen = f"{join}/{event_id}"
                if way != WAYS[0]:
                    listen = f"/gradio_api/queue/data?session_hash={body['session_hash']}"
                waits = True
                async with session.get(listen, headers=headers) as answer:
                    async for line in answer.content:
                        n_events += line.startswith(b"data:")
                        if waits and brings(line):
                            first.append(time.perf_counter() - asked)
                            waits = False
                n_asked += 1
                n_counted += started < time.perf_counter() < ended

        await asyncio.gather(*map(user, range(users)))
    return n_counted / seconds, statistics.median(first), n_events, n_asked


def question(way: str, events: list[dict], values: list) -> tuple[str, dict[str, Any]]:
    """Return the address to which a question goes, and its body."""
    if way == WAYS[0]:
        return "/gradio_api/call/chat", {"data": values}
    named = {event["api_name"]: event["id"] for event in events}
    if "reply" in named:
        turn = {"role": "user", "content": values[0]}
        values = [[turn], {"max_tokens": SETTINGS[1], "seed": values[-1]}, [], None]
    index = named.get("reply", named.get("send"))  # a page that is older than the view sends
    session = f"{random.getrandbits(64):x}"
    return "/gradio_api/queue/join", {"data": values, "fn_index": index, "session_hash": session}


def brings(line: bytes) -> bool:
    """Return whether a line of a stream brings something of the reply."""
    if b"process_" in line:  # the page's own
        return b"process_generating" in line and (b"n_new" in line or b"tokens/s" in line)
    return line.startswith(b"data: [") and line.strip() != b'data: [""]'


def print_row(way: str, users: int, folder: Path, results: tuple[Result, ...]) -> None:
    result = sorted(results)[len(results) // 2]
    print(
        f"| {way} | {users} | {folder.resolve().name} | {result.replies:.1f} | "
        f"{result.first:.3f} s | {result.events:.1f} | {result.cpu:.1f} ms |",
        flush=True,
    )


if __name__ == "__main__":
    main()
