"""A command in a process of its own, whose output goes to a file.

>>> child = Child(["-m", "training", "look", "book.txt"], Path("look.txt"))   # doctest: +SKIP
>>> child.wait()                                                       # doctest: +SKIP
0
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gptcore.system.files import CHECKOUT

SAVING_S = 120.0  # for a command that was stopped to save what it has


class Child:
    """A running command of this project. Only `stop` ends it; Ctrl-C in the terminal does not."""

    is_stopped = False  # whether it was asked to stop

    def __init__(self, arguments: Sequence[str], output: Path, goes_on: bool = False):
        """`arguments`: those of Python. `output`: the file that the command writes to.

        `goes_on`: whether what was written there before stays.
        """
        paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "PYTHONIOENCODING": "utf-8",
            "GPTCORE_PROGRESS_S": "1",  # the page shows the last line
        }
        # In a group of its own, so that it can be told to stop, alone, on Windows too.
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        with open(output, "ab" if goes_on else "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=not group,
                creationflags=group,
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """Return the exit code when the command has ended."""
        return self.process.wait()

    def stop(self) -> None:
        """Have the command save what it has, and end; asked twice, it would end without saving."""
        if self.is_running and not self.is_stopped:
            self.is_stopped = True
            self.process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))

    def end(self) -> None:
        """Stop the command and wait; one that does not end is killed."""
        if self.is_running:
            self.stop()
            print("waiting for the running command to end", flush=True)
        try:
            self.process.wait(SAVING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def output_of(path: Path) -> list[str]:
    """Return the lines of a command's output, as a terminal would show them now.

    A bar that is drawn each second adds less than 10 MB in a day, which are read in a moment.
    """
    if not path.is_file():
        return []
    text = path.read_bytes().decode("utf-8", errors="replace")
    # A bar is drawn over itself: after "\r" its line begins anew.
    lines = [line.rstrip().rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line.strip()]


def planned(lines: list[str]) -> list[str]:
    """Return the lines of the plan in what a training says before it begins."""
    first = next((i for i, line in enumerate(lines) if line.startswith("size ")), len(lines))
    return lines[first:]
