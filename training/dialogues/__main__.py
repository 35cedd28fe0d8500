"""python -m training.dialogues: print generated dialogues as JSON lines."""

import argparse
import json
import sys
from itertools import islice

from gptcore.system.command_line import guard
from training.dialogues.generator import dialogues

parser = argparse.ArgumentParser(prog="python -m training.dialogues", description=__doc__)
parser.add_argument("--count", type=int, default=1000, help="number of dialogues")
parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same dialogues")
arguments = parser.parse_args()
if arguments.count < 0:
    parser.error(f"--count {arguments.count} is out of range: choose 0 or more")


def run() -> int:
    for messages in islice(dialogues(arguments.seed), arguments.count):
        print(json.dumps({"messages": messages}))
    return 0


sys.exit(guard(run, "requirements-train.txt"))
