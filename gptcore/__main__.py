"""The command `gptcore`, also `python -m gptcore`: open the page, or chat in the terminal."""

import sys
from collections.abc import Sequence

from gptcore.system.command_line import Command, Program, run_program

COMMANDS = {
    "page": Command("gptcore.gradio.launch", "open the chat page"),
    "serve": Command("gptcore.api.serve", "answer clients that speak OpenAI's protocol"),
    "chat": Command("gptcore.terminal", "talk with a model in the terminal"),
}


def main(arguments: Sequence[str] | None = None, program: str = "gptcore") -> int:
    """Run a command line, by default this process's own, and return its exit code."""
    found = Program(program, COMMANDS, "page", "requirements.txt")
    return run_program(found, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main(program="python -m gptcore"))
