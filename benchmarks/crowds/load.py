"""Many users at once: tokens per second, time to the first token, and how evenly they are served.

    python benchmarks/crowds/load.py [FOLDER | PRESET ...] [--users 1 8 32 128] [--seconds 20]
    python benchmarks/crowds/load.py small --against llama.cpp

A folder's model answers chats; a preset gets random weights and continues ids. Each server runs in
a process of its own, and so do the users, who ask again as soon as they have an answer. All servers
of a model take turns. llama.cpp's server is that of the package xllamacpp, once with one thread and
once with all.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import aiohttp

from benchmarks.crowds.servers import ROOT, Server, free_port, llama, running
from benchmarks.serving.peers import write_random
from export.folder.serving import write_serving_graphs
from export.gguf.write import write_gguf
from export.quantize.save import save_quantized
from export.verify.report import TOLERANCE
from gptcore.bundle import VARIANTS, load_bundle, write_facts
from gptcore.config import DECODERS
from gptcore.system.cores import thread_counts

ASKED = ["Hello! Who are you?", "My name is Ada.", "Tell me a story about a cat.",
         "What is the capital of France?", "Can you count to ten?", "Tell me a joke."]  # fmt: skip
AT_ONE_ADDRESS = 16  # users; the API lets one address wait for as many replies
N_PROMPT, N_NEW = 32, 64  # ids, with random weights


class Result(NamedTuple):
    """What the users of one turn saw."""

    tokens: float  # per second, of all together
    replies: float  # per second
    first: list[float]  # seconds to the first token, of each reply
    fairness: float  # the slowest user's tokens divided by the mean
    errors: int
    client: float  # share of one core that the users' process took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["models/default"])
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--variants", nargs="+", default=["fp32", "q8"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--against", choices=["llama.cpp"])
    parser.add_argument(
        "--threads", type=int, nargs="+", default=thread_counts(), help="a server of theirs each"
    )
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:  # the users' own process
        wanted = json.loads(options.client)
        print(json.dumps(asyncio.run(crowd(**wanted))._asdict()))
        return
    print("| model | server | users | tokens/s | replies/s | first token p50 / p95 | slowest user "
          "/ mean | errors | server's memory | users' CPU |\n|" + "---|" * 10)  # fmt: skip
    for model in options.models:
        with tempfile.TemporaryDirectory() as temporary:
            measure(model, options, Path(temporary))


def measure(model: str, options: argparse.Namespace, temporary: Path) -> None:
    folder, is_random = Path(model), model in DECODERS
    if is_random:
        folder = temporary / "model"
        write_random(model, 512, folder)
        save_quantized(folder / VARIANTS["fp32"], folder / VARIANTS["q8"], "q8")
        facts = load_bundle(folder).facts
        write_serving_graphs(folder, facts.config, ["q8"], TOLERANCE)
        write_facts(folder, facts)
    bundle = load_bundle(folder)
    variants = [name for name in options.variants if name in bundle.serving]
    with ExitStack() as stack:
        servers = [stack.enter_context(ours(folder, name)) for name in variants]
        if options.against:
            slots = min(max(options.users), 64)
            gguf = temporary / "model.gguf"
            write_gguf(folder, gguf)
            for threads in options.threads:  # ours chooses by itself
                theirs = llama(gguf, bundle.config.block_size, slots, threads)
                servers.append(stack.enter_context(theirs))
        for users in options.users:
            for server in servers:
                result = ask(server, users, options.seconds, is_random)
                print_row(model, server, users, result)


@contextmanager
def ours(folder: Path, variant: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "gptcore", "serve", folder, "--variant", variant]
    with running(f"gptcore {variant}", [*command, "--port", port], port) as server:
        yield server


def ask(server: Server, users: int, seconds: float, is_random: bool) -> Result:
    """Let a crowd ask, in a process of its own."""
    wanted = {"port": server.port, "users": users, "seconds": seconds, "is_random": is_random}
    command = [sys.executable, __file__, "--client", json.dumps(wanted)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return Result(**json.loads(told.stdout))


async def crowd(port: int, users: int, seconds: float, is_random: bool) -> Result:
    """Let `users` ask for so long, after a second that is not counted."""
    counts, first, errors = [0] * users, [], [0]
    started = time.perf_counter() + 1.0
    ended = started + seconds
    replies = [0]
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(visitor(f"127.0.0.{2 + i // AT_ONE_ADDRESS}", port))
            for i in range(users)
        ]

        async def user(number: int) -> None:
            turn = 0
            while (asked := time.perf_counter()) < ended:
                turn += 1
                path, body = request(number, turn, is_random)
                is_first = True
                async with sessions[number].post(path, json=body) as answer:
                    if answer.status != 200:
                        errors[0] += 1
                        await asyncio.sleep(0.5)
                        continue
                    async for line in answer.content:
                        if not line.startswith(b"data: {"):
                            continue
                        now = time.perf_counter()
                        part = json.loads(line[6:])
                        if is_first and has_text(part):
                            is_first = False
                            first.append(now - asked)
                        if part.get("usage") and started < now < ended:
                            # Counted when the reply ends: what a turn cuts off at both ends
                            # is the same.
                            counts[number] += part["usage"]["completion_tokens"]
                            replies[0] += 1

        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.gather(*map(user, range(users)))
        after = resource.getrusage(resource.RUSAGE_SELF)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    mean = statistics.mean(counts)
    return Result(
        tokens=sum(counts) / seconds,
        replies=replies[0] / seconds,
        first=first,
        fairness=min(counts) / mean if mean else 0.0,
        errors=errors[0],
        client=busy / (seconds + 1),
    )


def visitor(address: str, port: int) -> aiohttp.ClientSession:
    """Return a client at an address of its own: one address may have so many calls open."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True, local_addr=(address, 0))
    return aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector)


def request(number: int, turn: int, is_random: bool) -> tuple[str, dict[str, Any]]:
    common = {"stream": True, "stream_options": {"include_usage": True}, "seed": number + turn}
    if is_random:
        ids = [(7 * number + 13 * turn + i) % 250 for i in range(N_PROMPT)]
        return "/v1/completions", common | {"prompt": ids, "max_tokens": N_NEW, "ignore_eos": True}
    text = ASKED[(number + turn) % len(ASKED)]
    messages = [{"role": "user", "content": text}]
    return "/v1/chat/completions", common | {"messages": messages, "max_tokens": 100}


def has_text(part: dict[str, Any]) -> bool:
    choices = part.get("choices") or [{}]
    return bool(choices[0].get("text") or choices[0].get("delta", {}).get("content"))


def print_row(model: str, server: Server, users: int, result: Result) -> None:
    cuts = statistics.quantiles(result.first, n=20) if len(result.first) > 1 else [0.0] * 19
    print(
        f"| {model} | {server.name} | {users} | {result.tokens:,.0f} | {result.replies:.1f} | "
        f"{cuts[9]:.2f} / {cuts[18]:.2f} s | {result.fairness:.2f} | {result.errors} | "
        f"{server.memory:,.0f} MB | {result.client:.0%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
