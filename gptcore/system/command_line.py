"""Programs with subcommands: each is a module, imported when it is called, so that `--help` and a
mistyped word are answered before PyTorch or Gradio is loaded.

    commands = {"doctor": Command("training.commands.doctor", "verify every file of a run"), ...}
    program = Program("python -m training", commands, "train", "requirements-train.txt")
    run_program(program, ["doctor", "runs/mine"])

A subcommand's module has `add_arguments(parser)` and `run(options)`, which returns the exit code.
It may have KEPT: what is not lost when the system fails or Ctrl-C ends the command.
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

REFUSED = 2  # the exit code of a mistake that the user can mend, as in argparse
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended
BROKEN_PIPE = 141  # ... and of one whose reader has gone


class Command(NamedTuple):
    """A subcommand: its module, and in one line what it does."""

    module: str
    help: str


class Program(NamedTuple):
    """Subcommands under one name."""

    name: str  # as it is called
    commands: Mapping[str, Command]
    default: str  # the command of a line that names none
    requirements: str  # the file that lists the packages it needs


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Run the subcommand that the first argument names, or the default; the exit code."""
    kept = ""

    def run() -> int:
        nonlocal kept
        name, rest = choose(program, arguments)
        module = import_module(program.commands[name].module)
        kept = getattr(module, "KEPT", "")
        parser = argparse.ArgumentParser(
            prog=program.name if name == program.default else f"{program.name} {name}",
            description=describe(program, name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser)
        return module.run(parser.parse_args(rest))

    return guard(run, program.requirements, lambda: kept)


def choose(program: Program, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The subcommand's name, and its arguments. UserError if the first one is nearly a name."""
    named = [name for name in program.commands if name != program.default]
    first = arguments[0] if arguments else ""
    if first in named:
        return first, arguments[1:]
    if get_close_matches(first, named) and not Path(first).exists():
        check_choice("command", first, named)
    return program.default, arguments


def describe(program: Program, name: str) -> str:
    """What a subcommand does, for --help; the default one lists the others."""
    does = program.commands[name].help
    lines = [f"{does[0].upper()}{does[1:]}."]
    if name == program.default:
        lines += ["", f"other commands ({program.name} COMMAND --help):"]
        others = program.commands.items()
        lines += [f"  {other:10} {command.help}" for other, command in others if other != name]
    return "\n".join(lines)


def guard(run: Callable[[], int], requirements: str, kept: Callable[[], str] = str) -> int:
    """The exit code of `run`. What is no fault of the program ends in one line, not a traceback;
    where the system fails or Ctrl-C ends the command, `kept()` adds what is not lost."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()  # a reader that has gone is noticed here, not after the end
    except UserError as error:
        return say(f"error: {error}", REFUSED)
    except ModuleNotFoundError as error:
        return say(f"error: the package {error.name} is missing: pip install -r {requirements}", 1)
    except BrokenPipeError:
        # The reader has seen enough, as `head` has. What is left goes nowhere, without an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:  # a full disk, a missing permission
        return say(f"error: {' '.join(str(error).split())}{kept()}", REFUSED)
    except KeyboardInterrupt:
        return say(f"\nstopped{kept()}", INTERRUPTED)


def say(line: str, code: int) -> int:
    """Print a line to standard error; the exit code."""
    print(line, file=sys.stderr)
    return code
