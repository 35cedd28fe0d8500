"""python -m training: a file of training/commands/ for each subcommand.

python -m training TEXT... --out runs/NAME        train.py: from text files to a trained model
python -m training doctor runs/NAME               doctor.py, and so on
"""

import sys

from gptcore.system.command_line import Command, Program, run_program
from gptcore.system.cores import let_waiting_threads_sleep

COMMANDS = {
    "train": Command(
        "training.commands.train",
        "train a small GPT on text files, or without any on made-up dialogues",
    ),
    "translate": Command(
        "training.commands.translate", "train an encoder-decoder on pairs of sentences"
    ),
    "recipe": Command(
        "training.commands.recipe", "train a model in the stages of a recipe, or go on with it"
    ),
    "prepare": Command(
        "training.commands.prepare", "only tokenise texts, into token shards to train on elsewhere"
    ),
    "datasets": Command(
        "training.commands.datasets", "list the data sets, or fetch and count those that are named"
    ),
    "evaluate": Command(
        "training.commands.evaluate", "measure bits per byte, and hold short conversations"
    ),
    "doctor": Command(
        "training.commands.doctor", "verify every file of a run, and say what can be resumed"
    ),
    "report": Command(
        "training.commands.report", "write the report of a run, or of several, as one HTML file"
    ),
}
PROGRAM = Program("python -m training", COMMANDS, "train", "requirements-train.txt")


def main(arguments: list[str] | None = None) -> int:
    return run_program(PROGRAM, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    let_waiting_threads_sleep()
    sys.exit(main())
