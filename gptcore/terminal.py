"""Chat in the terminal: gptcore chat [MODEL]. A base model continues what is typed.

The reply is streamed. Ctrl-C stops it and keeps what was written; /new begins a new conversation;
/quit or Ctrl-D ends the program.
"""

import argparse
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType

from gptcore.bundle import VARIANTS, default_model, read_facts, say_if_large
from gptcore.checks import UserError
from gptcore.engine.generate import Finish, Model, Piece, chat, check_max_tokens, complete
from gptcore.engine.inputs import usual_sampling
from gptcore.engine.sampling import SETTINGS, Sampling
from gptcore.system.runtime import check_runtime
from gptcore.text.chat_template import Message

PROMPT = "> "
# What is told of a reply that did not end by itself.
CUT: dict[Finish | None, str] = {
    "length": "stopped at max tokens",
    "context": "stopped: the context is full",
    "stopped": "stopped by you",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--system", metavar="TEXT", help="a system prompt")
    parser.add_argument(
        "--max-tokens", type=int, default=256, metavar="N", help="tokens per reply (%(default)s)"
    )
    for setting in SETTINGS:
        parser.add_argument(
            f"--{setting.name.replace('_', '-')}",
            type=int if setting.is_whole else float,
            metavar="N" if setting.is_whole else "X",
            help=f"{setting.info} ({setting.default}, or what the model's makers recommend)",
        )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model folder and its variant, as every command without the page takes them."""
    parser.add_argument(
        "model",
        type=Path,
        nargs="?",
        default=default_model(),
        help="a model folder (default: the model that ships)",
    )
    parser.add_argument("--variant", help=f"{', '.join(VARIANTS)} (default: the fastest there is)")


def run(options: argparse.Namespace) -> int:
    """Load the model and chat until the user quits; return the exit code. Raises UserError."""
    check_max_tokens(options.max_tokens)
    given = {s.name: getattr(options, s.name) for s in SETTINGS}
    given = {name: value for name, value in given.items() if value is not None}
    sampling = replace(usual_sampling(read_facts(options.model)), **given)
    check_runtime()
    from gptcore.model import device_line, load_model

    say_if_large(options.model)
    model = load_model(options.model, variant=options.variant)
    if options.system and not model.bundle.is_chat:
        raise UserError(f"--system: {options.model} was not trained on conversations")
    print(f"{model.bundle.name}: {device_line(model)}")
    new = "/new begins a new conversation; " if model.bundle.is_chat else ""
    print(f"Ctrl-C stops a reply; {new}/quit or Ctrl-D ends.")
    system = [{"role": "system", "content": options.system}] if options.system else []
    with ctrl_c(lambda *_: None):  # between a prompt and a reply there is nothing to stop
        if model.bundle.is_chat:
            converse(model, system, sampling, options.max_tokens)
        else:
            print("It is a base model: it continues the text that you type.")
            go_on(model, sampling, options.max_tokens)
    return 0


def converse(model: Model, system: list[Message], sampling: Sampling, max_tokens: int) -> None:
    """Answer each typed line. A refused message leaves the conversation unchanged."""
    messages = system
    for text in typed():
        if text == "/new":
            messages = system
            print("(a new conversation)")
            continue
        if re.fullmatch(r"/\w+", text):
            print(f"({text} is no command: /new begins a new conversation, /quit ends)")
            continue
        asked = [*messages, {"role": "user", "content": text}]
        reply = shown(partial(chat, model, asked, sampling, max_tokens))
        if reply is not None:
            messages = [*asked, {"role": "assistant", "content": reply}]


def go_on(model: Model, sampling: Sampling, max_tokens: int) -> None:
    """Continue each typed line, each by itself."""
    for text in typed():
        shown(partial(complete, model, text, sampling, max_tokens), text)


def typed() -> Iterator[str]:
    """Yield each non-empty line that is typed, until /quit or Ctrl-D."""
    with suppress(ImportError):  # Windows has no readline
        import readline  # noqa: F401 (arrow keys then edit the line and recall earlier ones)
    while True:
        try:
            with ctrl_c(signal.default_int_handler):
                line = input(PROMPT if sys.stdin.isatty() else "").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n(/quit or Ctrl-D ends)")
            continue
        if line == "/quit":
            return
        if line:
            yield line


def shown(generated: Callable[[Event], Iterator[Piece]], before: str = "") -> str | None:
    """Print a reply as it is generated; return its text, complete or not, or None if refused."""
    stop, text = Event(), ""
    try:
        pieces = generated(stop)
        print(before, end="", flush=True)
        with ctrl_c(lambda *_: stop.set()):
            for piece in pieces:
                print(piece.text, end="", flush=True)
                text += piece.text
                if piece.finish:
                    print("".join(f"\n({note})" for note in notes(piece)), end="\n\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    return text


def notes(last: Piece) -> list[str]:
    """Return notes about a reply: messages left out, and why it ended if it is incomplete."""
    n = last.n_dropped
    several = f"the oldest {n} messages no longer fit and were left out"
    dropped = "the oldest message no longer fits and was left out" if n == 1 else several
    return [*([dropped] if n else []), *([CUT[last.finish]] if last.finish in CUT else [])]


@contextmanager
def ctrl_c(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handler` run at Ctrl-C, in place of the one before."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
