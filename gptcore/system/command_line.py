"""Programs with subcommands. Each subcommand is a module that is imported when it is called, so
`--help` and a misspelled command are answered before PyTorch or Gradio is loaded.

    commands = {"doctor": Command("training.commands.doctor", "verify every file of a run"), ...}
    program = Program("python -m training", commands, "train", "requirements-train.txt")
    run_program(program, ["doctor", "runs/mine"])

A subcommand's module defines `add_arguments(parser)` and `run(options)`, which returns the exit
code. It may define KEPT: text for the error line that says what an aborted command leaves intact.
Where that depends on how far the command came, it defines `kept(options)`, which returns the text.
"""

import _thread
import argparse
import gc
import io
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from gptcore.checks import UserError, check_choice, closest

REFUSED = 2  # exit code for a user's mistake, as in argparse
INTERRUPTED = 130  # the shells' exit code for a program that Ctrl-C ended
BROKEN_PIPE = 141  # the shells' exit code for a program whose reader closed the pipe
# What to run first on a machine without a GPU, to save gigabytes of CUDA
CPU_TORCH = "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"


class Command(NamedTuple):
    """A subcommand: its module and a one-line description."""

    module: str
    help: str


class Program(NamedTuple):
    """A program name and its subcommands."""

    name: str  # as typed on the command line
    commands: Mapping[str, Command]
    default: str  # the subcommand that runs when none is named
    requirements: str  # the file that lists the packages the program needs
    examples: str = ""  # if there are some, the program without arguments prints them and ends


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Run the subcommand that the first argument names, or the default; return the exit code."""
    kept: Callable[[], str] = str

    def run() -> int:
        nonlocal kept
        if program.examples and not arguments:
            return say(program.examples, REFUSED)
        name, rest = choose(program, arguments)
        module = import_module(program.commands[name].module)
        parser = argparse.ArgumentParser(
            prog=program.name if name == program.default else f"{program.name} {name}",
            description=describe(program, name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.register("type", float, number)
        parser.register("type", int, whole_number)
        module.add_arguments(parser)
        options, unknown = parser.parse_known_args(rest)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{advice(parser, unknown[0])}")
        what = getattr(module, "kept", lambda _: getattr(module, "KEPT", ""))
        kept = partial(what, options)
        return module.run(options)

    return guard(run, program.requirements, lambda: kept())


def advice(parser: argparse.ArgumentParser, unknown: str) -> str:
    """Return what may have been meant by an unknown argument, to append, or ""."""
    if unknown.startswith("-"):
        known = re.findall(r"--([\w-]+)", parser.format_usage())
        meant = closest(unknown.partition("=")[0].lstrip("-"), known)
        return f": did you mean '--{meant}'?" if meant else ""
    if "=" in unknown:
        return ": each KEY=VALUE needs a --set of its own"
    takes_model = "[--model " in parser.format_usage()
    return f": a model's folder is named with --model {unknown}" if takes_model else ""


def number(text: str) -> float:
    """Return the number that was typed; argparse would speak of an invalid float value."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 10 or 0.5") from None


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, such as 10") from None


def leave(code: int) -> NoReturn:
    """End the process. What PyTorch has left is not collected first, which would take seconds."""
    gc.freeze()
    sys.exit(code)


def choose(program: Program, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the subcommand's name and its arguments; raises UserError for a misspelled name."""
    named = [name for name in program.commands if name != program.default]
    first = arguments[0] if arguments else ""
    if first in named:
        return first, arguments[1:]
    is_word = not first.startswith("-") and not Path(first).exists()
    if is_word and closest(first, named):
        check_choice("command", first, named)
    return program.default, arguments


def describe(program: Program, name: str) -> str:
    """Return a subcommand's --help text; the default command's text lists the other commands."""
    does = program.commands[name].help
    lines = [f"{does[0].upper()}{does[1:]}."]
    if name == program.default:
        lines += ["", f"other commands ({program.name} COMMAND --help):"]
        others = program.commands.items()
        lines += [f"  {other:10} {command.help}" for other, command in others if other != name]
    return "\n".join(lines)


def guard(run: Callable[[], int], requirements: str, kept: Callable[[], str] = str) -> int:
    """Call `run` and return its exit code; report known errors in one line without a traceback.

    After a system error or Ctrl-C, `kept()` is appended: it says what is not lost.
    """
    replace_unknown()
    try:
        try:
            with ended_like_ctrl_c():
                return run()
        finally:
            sys.stdout.flush()  # notice a closed pipe here, not at exit
    except UserError as error:
        return say(f"error: {error}", REFUSED)
    except ModuleNotFoundError as error:
        is_first = "train" in requirements and not find_spec("torch")
        first = f" (on a machine without a GPU, first {CPU_TORCH})" * is_first
        told = f"error: the package {error.name} is missing: pip install -r {requirements}{first}"
        return say(told, 1)
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does. The remaining output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:  # a full disk, a missing permission
        return say(f"error: {' '.join(str(error).split())}{kept()}", REFUSED)
    except KeyboardInterrupt:
        # After one within exec(), as when a dataclass is imported, `python -m` ends by SIGINT,
        # whatever its exit code is: Python keeps it in mind until the next exec().
        exec("")
        return say(f"\nstopped{kept()}", INTERRUPTED)


def replace_unknown() -> None:
    """Read and print a "?" for what the terminal's encoding does not have, in place of an error.

    Standard error, which writes such a character's code, raises none.
    """
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # a program without a terminal may have none
            stream.reconfigure(errors="replace")


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM, SIGHUP and Windows' Ctrl-Break clean up as Ctrl-C does.

    Schedulers send the first, a terminal that is closed sends the second.
    """
    names = ("SIGTERM", "SIGHUP", "SIGBREAK")
    is_main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, interrupt) for n in (heeded(*names) if is_main else [])}
    hook = sys.unraisablehook
    sys.unraisablehook = partial(interrupt_again, hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        put_back(before, interrupt)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    leave_terminal(number)
    raise KeyboardInterrupt


def interrupt_again(
    otherwise: Callable[["sys.UnraisableHookArgs"], object], dropped: "sys.UnraisableHookArgs"
) -> None:
    """Send an interrupt once more that came in a callback, where Python drops it.

    Each import has such a callback: of 600 interrupts while PyTorch is imported, one was lost.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        otherwise(dropped)
        return
    # On Windows os.kill() would end the process at once.
    send = _thread.interrupt_main if sys.platform == "win32" else partial(os.kill, os.getpid())
    for number in heeded("SIGINT", "SIGTERM")[:1]:
        while not send_later(send, number):
            pass


def send_later(send: Callable[[Any], object], number: int) -> bool:
    """Send a signal in a moment, as here it would be dropped, too; False if it came already."""
    later = threading.Timer(0.1, send, [number])
    later.daemon = True
    try:
        later.start()
    except KeyboardInterrupt:  # on a busy machine, whose threads start slowly
        return False
    return True


def heeded(*names: str) -> list[int]:
    """Return the signals that this system has, without those ignored (nohup ignores SIGHUP)."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def put_back(before: dict[int, Any], ours: Callable[..., None]) -> None:
    """Put back the handlers from before, where ours is still in their place."""
    for number, handler in before.items():
        if signal.getsignal(number) == ours:
            signal.signal(number, handler)


def leave_terminal(number: int) -> None:
    """After SIGHUP, which shells send twice, ignore the second, and print to files alone.

    What is written to a closed terminal, or to a pipe whose reader went with it, is an error.
    """
    if number != getattr(signal, "SIGHUP", None):
        return
    signal.signal(number, signal.SIG_IGN)
    for stream in (1, 2):
        if not stat.S_ISREG(os.fstat(stream).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def say(line: str, code: int) -> int:
    """Print a line to standard error and return `code`."""
    print(line, file=sys.stderr)
    return code
