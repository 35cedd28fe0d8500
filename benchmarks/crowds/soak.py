"""Many conversations for a long time: does the memory stay, and does the server answer at once?

    python benchmarks/crowds/soak.py [--conversations 1000] [--requests 20000] [--model models/nano]

Each of --users holds one conversation after the other, over the API, or, one in ten, over the
page's queue. One reply in twenty is left in the middle, and one in fifty read slowly. Meanwhile
a process that does nothing else asks for /health ten times a second. The memory is that of the
server's process, after each twentieth of the requests.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import aiohttp

from benchmarks.crowds.servers import Server, address, page

ASKED = ["Hello! Who are you?", "My name is Ada.", "Tell me a story.", "What is my name?", "Why?"]
SETTINGS = [0.7, 16, 50, 1, 0, 1, -1]


def ping(port: int, pipe: Connection) -> None:
    """Ask for /health until the pipe says stop, and send the seconds of each answer into it."""
    connection, seconds = HTTPConnection("127.0.0.1", port), []
    while not pipe.poll(0.1):
        begun = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - begun)
    pipe.send(seconds)


@contextmanager
def pinging(port: int) -> Iterator[list[float]]:
    """Ask for /health in a process of its own; the list has the seconds when the block ends."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=ping, args=(port, its))
    process.start()
    seconds: list[float] = []
    try:
        yield seconds
        ours.send("stop")
        seconds += ours.recv()
    finally:
        process.terminate()
        process.join()


class Soak:
    """A server, those who talk with it, and what they saw."""

    def __init__(self, server: Server, options: argparse.Namespace):
        self.server, self.options = server, options
        self.turns = options.requests // options.conversations
        self.seen: Counter[str] = Counter()
        self.memory: list[float] = []  # megabytes
        self.n_asked = self.n_begun = 0

    async def run(self) -> None:
        limits = aiohttp.ClientTimeout(total=120)
        base = f"http://127.0.0.1:{self.server.port}"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(base, timeout=limits, connector=connector) as session:
            with pinging(self.server.port) as pings:
                await asyncio.gather(*(self.user(session) for _ in range(self.options.users)))
            await asyncio.sleep(12)  # what nobody reads is given up
            async with session.get("/metrics") as answer:
                left = [line for line in (await answer.text()).splitlines() if "_running" in line]
        print(f"{self.n_asked:,} requests in {self.n_begun:,} conversations: {dict(self.seen)}; "
              f"in the end {left[-1]}")  # fmt: skip
        cuts = statistics.quantiles(pings, n=100)
        print(f"/health: p50 {1000 * cuts[49]:.0f} ms, p99 {1000 * cuts[98]:.0f} ms, "
              f"longest {1000 * max(pings):.0f} ms of {len(pings):,}")  # fmt: skip
        print("memory, MB: " + " ".join(f"{m:.0f}" for m in [*self.memory, self.server.memory]))
        print(f"in the end / after the first twentieth: {self.server.memory / self.memory[0]:.3f}")

    async def user(self, session: aiohttp.ClientSession) -> None:
        while self.n_begun < self.options.conversations:
            self.n_begun += 1
            number = self.n_begun
            talk = self.over_the_page if number % 10 == 0 else self.over_the_api
            messages: list[dict[str, str]] = []
            for turn in range(self.turns):
                messages.append({"role": "user", "content": ASKED[(number + turn) % len(ASKED)]})
                reply = await talk(session, number, messages)
                messages.append({"role": "assistant", "content": reply})
                self.count()

    def count(self) -> None:
        self.n_asked += 1
        if self.n_asked % (self.options.requests // 20) == 0:
            self.memory.append(self.server.memory)
            print(f"{self.n_asked:,}: {self.memory[-1]:.0f} MB", flush=True)

    async def over_the_api(
        self, session: aiohttp.ClientSession, number: int, messages: list[dict[str, str]]
    ) -> str:
        body = {"messages": messages, "max_tokens": 16, "stream": True, "seed": number}
        text, kind = "", random.random()
        path = "/v1/chat/completions"
        async with session.post(path, json=body, headers=address(number)) as answer:
            self.seen[f"{answer.status}"] += 1
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    text += delta.get("content") or ""
                if kind < 0.05 and text:
                    self.seen["went away"] += 1
                    answer.close()
                    break
                if kind > 0.98:
                    await asyncio.sleep(0.2)
        return text

    async def over_the_page(
        self, session: aiohttp.ClientSession, number: int, messages: list[dict[str, str]]
    ) -> str:
        *history, last = messages
        body = {"data": [last["content"], history, "", *SETTINGS]}
        headers = address(number)
        async with session.post("/gradio_api/call/chat", json=body, headers=headers) as answer:
            self.seen[f"page {answer.status}"] += 1
            told = await answer.json()
        if "event_id" not in told:
            return ""
        async with session.get(
            f"/gradio_api/call/chat/{told['event_id']}", headers=headers
        ) as answer:
            lines = [line for line in (await answer.text()).splitlines() if line[:5] == "data:"]
        return json.loads(lines[-1][5:])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--model", default="models/nano")
    options = parser.parse_args()
    if options.requests < max(20, options.conversations):
        parser.error(
            f"--requests {options.requests}: give at least 20, and one for each conversation"
        )
    with page(options.model) as server:
        asyncio.run(Soak(server, options).run())


if __name__ == "__main__":
    main()
