"""gptcore serve [MODEL]: the API alone, for clients that speak OpenAI's protocol.

It answers http://HOST:PORT/v1/chat/completions, /v1/responses and /v1/completions, and loads
neither the page nor Gradio. With --api-key a call needs a key: one of GPTCORE_API_KEY (several are
separated by commas), or the one that is typed at the start.
"""

import argparse
import getpass
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore.bundle import read_facts
from gptcore.checks import UserError
from gptcore.system.cores import say_if_busy
from gptcore.system.network import allow_connections, checked_port, is_loopback, reachable
from gptcore.system.runtime import check_runtime
from gptcore.terminal import add_model_arguments

if TYPE_CHECKING:
    from gptcore.api.access import Access

KEYS = "GPTCORE_API_KEY"
# As browsers send it: with nothing after the port, not even a slash. "null" is a local file's.
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (%(default)s)")
    add_door_arguments(parser)


def add_door_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the API, which the page has, too."""
    parser.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        help="offer the models in this folder, too (default: models/, to people at this machine)",
    )
    parser.add_argument(
        "--memory", type=float, default=4, metavar="GB", help="most for all models (%(default)s GB)"
    )
    parser.add_argument(
        "--api-key", action="store_true", help=f"the API needs a key, of {KEYS} or typed now"
    )
    parser.add_argument(
        "--cors", nargs="+", default=[], metavar="ORIGIN", help="web pages that may use the API"
    )
    parser.add_argument(
        "--rate-limit", type=int, metavar="N", help="calls of the API in a minute, of each key"
    )
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        default="SPACE_ID" in os.environ,
        help="a proxy in front reports the visitors' addresses in X-Forwarded-For "
        "(a Space sets it)",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        default="SPACE_ID" in os.environ,
        help="let in everyone who reaches --host (a Space sets it)",
    )


def run(options: argparse.Namespace) -> int:
    host = options.host.strip("[]")
    options.port = checked_port(host, options.port)
    allow_connections()
    if others_reach(options, host) and not (options.api_key or options.public):
        door, place = f"--host {host}", "this machine"
        if options.behind_proxy:
            door, place = "--behind-proxy", "the proxy"
        raise UserError(
            f"{door}: everyone who reaches {place} could use the model: add --api-key, or --public"
        )
    read_facts(options.model)
    check_runtime()
    from gptcore.api.protocol import Config, Server
    from gptcore.api.routes import Api
    from gptcore.models import load_models

    access = choose_access(options, host)
    models = load_models(options, is_shared(options, host))
    say_if_busy()
    print(f"http://{reachable(host)}:{options.port}/v1 (Ctrl-C ends)", flush=True)
    app, behind_proxy = Api(models, access), access.behind_proxy
    with suppress(KeyboardInterrupt):
        Server(Config(app, host=host, port=options.port, behind_proxy=behind_proxy)).run()
    return 0


def others_reach(options: argparse.Namespace, host: str) -> bool:
    """Return whether other machines can reach the server, directly or through a proxy."""
    return options.behind_proxy or not is_loopback(host)


def is_shared(options: argparse.Namespace, host: str) -> bool:
    """Return whether the server is for others than the people at this machine."""
    return options.public or others_reach(options, host)


def choose_access(options: argparse.Namespace, host: str) -> "Access":
    """Return the access rules that the options set; ask for a key. Raises UserError."""
    from gptcore.api.access import Access

    if options.rate_limit is not None and options.rate_limit < 1:
        raise UserError(f"--rate-limit {options.rate_limit}: choose 1 or more, or leave it out")
    for origin in options.cors:
        if not ORIGIN.fullmatch(origin):
            raise UserError(
                f"--cors {origin}: name pages by how their addresses begin, such as "
                f"https://example.com, or give * for all"
            )
    return Access(read_keys(options), options.cors, options.rate_limit, options.behind_proxy, host)


def read_keys(options: argparse.Namespace) -> list[str]:
    """Return the keys of the API, which no command line shows to other users of the machine."""
    if not options.api_key:
        return []
    given = secret(KEYS, "API key: ")
    keys = [key.strip() for key in given.split(",") if key.strip()]
    if not keys:
        raise UserError(f"--api-key: the key is empty: set {KEYS}")
    if not "".join(keys).isascii():  # programs disagree on how to send others
        raise UserError(f"--api-key: {KEYS} may have ASCII letters, digits and signs alone")
    return keys


def secret(variable: str, prompt: str) -> str:
    """Return what a variable of the environment holds, or else what is typed; raises UserError."""
    try:
        return os.environ.get(variable) or getpass.getpass(prompt)
    except EOFError:
        raise UserError(f"there is no terminal to type at: set {variable}") from None
