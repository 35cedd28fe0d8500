"""python -m training: each subcommand is a module of training/commands/.

python -m training TEXT... --out runs/NAME        train.py trains a model on text files
python -m training doctor runs/NAME               doctor.py checks a run
"""

import sys

from gptcore.system.command_line import Command, Program, leave, run_program
from gptcore.system.cores import choose_waiting_policy

COMMANDS = {
    "train": Command(
        "training.commands.train",
        "train a small GPT on text files, or on generated dialogues if no file is named",
    ),
    "translate": Command(
        "training.commands.translate", "train an encoder-decoder on sentence pairs"
    ),
    "recipe": Command(
        "training.commands.recipe", "train a model in the stages of a recipe, or resume it"
    ),
    "shards": Command(
        "training.commands.shards", "tokenise texts into token shards, without training"
    ),
    "look": Command("training.commands.look", "say what is in files, and what is skipped in them"),
    "datasets": Command(
        "training.commands.datasets", "list the data sets, or download and count the named ones"
    ),
    "evaluate": Command(
        "training.commands.evaluate", "measure bits per byte, and hold short conversations"
    ),
    "doctor": Command(
        "training.commands.doctor", "verify every file of a run, and tell what can be resumed"
    ),
    "report": Command("training.commands.report", "write one HTML report of one or several runs"),
}
EXAMPLES = """\
usage: python -m training TEXT... [--minutes N | --preset NAME] --out FOLDER

  python -m training book.txt --minutes 10 --out runs/mine     train for ten minutes on a text
  python -m training look chats.csv                            say what is in a file, only
  python -m training chats.jsonl --init runs/mine --out runs/chat
                                                               go on with conversations
"python -m training --help" lists the options and the other commands."""
PROGRAM = Program("python -m training", COMMANDS, "train", "requirements-train.txt", EXAMPLES)


def main(arguments: list[str] | None = None) -> int:
    return run_program(PROGRAM, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    choose_waiting_policy()
    leave(main())
