"""Programs with subcommands: each is a module, imported when it is called, so that `--help` and a
mistyped word are answered before PyTorch or Gradio loads.

    COMMANDS = {"doctor": Command("training.commands.doctor", "verify every file of a run")}
    run_program("python -m training", "train", COMMANDS, ["doctor", "runs/mine"])

A module of a subcommand has `add_arguments(parser)` and `run(options)`, which returns an exit
code. It may have KEPT: what is not lost when the system fails or Ctrl-C ends it.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from gptcore.checks import UserError, check_choice

REFUSED = 2  # the exit code of a mistake that the user can mend, as argparse has it
INTERRUPTED = 130  # those by which a shell knows Ctrl-C, and a reader that has gone
BROKEN_PIPE = 141


class Command(NamedTuple):
    """A subcommand: the module that runs it, and what it does in one line."""

    module: str
    help: str


def run_program(
    program: str, default: str, commands: Mapping[str, Command], arguments: Sequence[str]
) -> int:
    """Run the subcommand that the first argument names, or `default`; the exit code."""

    def run() -> int:
        nonlocal kept
        name, rest = choose(default, commands, arguments)
        module = import_module(commands[name].module)
        kept = getattr(module, "KEPT", "")
        parser = argparse.ArgumentParser(
            prog=program if name == default else f"{program} {name}",
            description=sentence(commands[name].help),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == default:
            parser.epilog = list_commands(program, default, commands)
        module.add_arguments(parser)
        return module.run(parser.parse_args(rest))

    kept = ""
    return guard(run, lambda: kept)


def choose(
    default: str, commands: Mapping[str, Command], arguments: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """The name of the subcommand, and its own arguments. UserError if a word is nearly a name."""
    named = {name: command for name, command in commands.items() if name != default}
    first = arguments[0] if arguments else ""
    if first in named:
        return first, arguments[1:]
    if get_close_matches(first, named) and not Path(first).exists():
        check_choice("command", first, named)
    return default, arguments


def list_commands(program: str, default: str, commands: Mapping[str, Command]) -> str:
    """The other subcommands, for --help."""
    lines = [f"other commands ({program} COMMAND --help):"]
    lines += [
        f"  {name:11} {command.help}" for name, command in commands.items() if name != default
    ]
    return "\n".join(lines)


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def guard(run: Callable[[], int], kept: Callable[[], str] = str) -> int:
    """The exit code of `run`. Errors that are not the program's own end in one line; where the
    system fails or Ctrl-C ends it, the line goes on with `kept()`, what is not lost."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()  # here, so that a reader that has gone is noticed
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        # The reader has seen enough, as `head` has; Python must not fail at the exit by flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:  # a full disk, a missing permission
        print(f"error: {' '.join(str(error).split())}{kept()}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print(f"\nstopped{kept()}", file=sys.stderr)
        return INTERRUPTED
