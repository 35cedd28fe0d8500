"""`gptcore chat` at a terminal's keyboard. (Windows has no pseudo-terminals of this kind.)"""

import os
import pty
import re
import select
import sys
from collections.abc import Iterator

import pytest

CTRL_C, CTRL_D = "\x03", "\x04"
# Any token is as likely as another, so that a reply goes on until the context is full.
ENDLESS = ("--temperature", "10", "--top-k", "0", "--max-tokens", "500")


class Terminal:
    """`gptcore chat` in a pseudo-terminal: its screen and its keyboard."""

    def __init__(self, *options: str):
        self.screen = ""
        self.pid, self.keyboard = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"  # no escape sequences
            command = [sys.executable, "-m", "gptcore", "chat", *options]
            os.execv(sys.executable, command)

    def type(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def until(self, pattern: str, again: str = "") -> str:
        """What is shown up to the first place that matches; the next call goes on there.

        With `again`, keys that are pressed once more when nothing comes for a second: a Ctrl-C
        just before readline waits for a key is noticed with the next key only.
        """
        waited = 0
        while not (found := re.search(pattern, self.screen)):
            ready, _, _ = select.select([self.keyboard], [], [], 1)
            if ready:
                self.screen += os.read(self.keyboard, 4096).decode(errors="replace")
                continue
            waited += 1
            assert waited < 120, f"nothing more came after {self.screen!r}"
            self.type(again)
        shown, self.screen = self.screen[: found.end()], self.screen[found.end() :]
        return shown

    def exit_code(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(*getattr(request, "param", ("--temperature", "0")))
    opened.until("/quit or Ctrl-D ends")
    opened.until("> ")
    yield opened
    os.close(opened.keyboard)


def test_a_reply_is_shown_and_quit_ends_the_program(terminal: Terminal) -> None:
    terminal.type("Hello!\n")
    terminal.until("Hello!\r\n")  # the echo
    assert terminal.until("\r\n\r\n> ").strip("\r\n> ").lower().startswith(("hello", "hi", "hey"))
    terminal.type("/quit\n")
    assert terminal.exit_code() == 0


def test_ctrl_d_ends_the_program_and_ctrl_c_at_the_prompt_does_not(terminal: Terminal) -> None:
    terminal.type("half a line")
    terminal.until("half a line")  # the echo: only now does the program wait for keys
    terminal.type(CTRL_C)
    terminal.until(r"\(/quit or Ctrl-D ends\)\r\n> ", again=CTRL_C)
    terminal.type(CTRL_D)
    assert terminal.exit_code() == 0


@pytest.mark.parametrize("terminal", [ENDLESS], indirect=True)
def test_the_text_streams_and_ctrl_c_stops_the_reply_and_not_the_program(
    terminal: Terminal,
) -> None:
    for _ in range(20):
        terminal.type("Hello!\n")
        terminal.until("Hello!\r\n")
        terminal.until(r"\S")
        terminal.type(CTRL_C)
        terminal.type("\n")  # a reply may have ended by itself: then the key ended an empty line
        if "(stopped by you)" in terminal.until(r"\)\r\n\r\n> |Ctrl-D ends\)\r\n> |\n> \r\n> "):
            break
    else:
        raise AssertionError("no reply was stopped")
    terminal.type("Hello again!\n")
    terminal.until("Hello again!\r\n")
    terminal.until("\r\n\r\n> ")
    terminal.type("/quit\n")
    assert terminal.exit_code() == 0
