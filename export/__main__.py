"""The command `python -m export`. Each subcommand is a module of export/commands/.

python -m export runs/NAME --out models/NAME      export.py: a run to a verified model folder
python -m export verify models/NAME               verify.py, and so on
"""

import sys

from gptcore.system.command_line import Command, Program, leave, run_program
from gptcore.system.cores import choose_waiting_policy
from training.machine.malloc import return_freed_memory

COMMANDS = {
    "export": Command(
        "export.commands.export",
        "turn a training run, or with --from-hf a Hugging Face model, into a verified model folder",
    ),
    "fetch": Command(
        "export.commands.fetch",
        "fetch a small model by name from the Hugging Face Hub, and write its model folder",
    ),
    "verify": Command(
        "export.commands.verify", "verify a model folder again, or run it in other runtimes"
    ),
    "inspect": Command("export.commands.inspect", "add the graphs that the page's Inspect needs"),
    "score": Command(
        "export.commands.score", "translate a file of pairs, and score the translations"
    ),
    "gguf": Command("export.commands.gguf", "write a model for llama.cpp, in one file"),
    "embed": Command(
        "export.commands.embed", "write a kit with which the model runs inside another program"
    ),
    "ship": Command(
        "export.commands.ship", "write a small copy of a model folder, for a plain git push"
    ),
    "space": Command("export.commands.space", "write a Hugging Face Space: the page with a model"),
    "push": Command(
        "export.commands.push", "upload a model folder, a Space or a static page to the Hub"
    ),
    "web": Command(
        "export.commands.web",
        "write a static page that chats in the browser, without a server: a folder, or one file",
    ),
    "desktop": Command(
        "export.commands.desktop", "write an application folder that starts without Python"
    ),
}
PROGRAM = Program("python -m export", COMMANDS, "export", "requirements-train.txt")


def main(arguments: list[str] | None = None) -> int:
    return run_program(PROGRAM, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    choose_waiting_policy()
    return_freed_memory()
    leave(main())
