"""python -m training.dialogues: print generated dialogues as JSON lines."""

import argparse
import json
from itertools import islice

from training.dialogues.generator import dialogues

parser = argparse.ArgumentParser(prog="python -m training.dialogues", description=__doc__)
parser.add_argument("--count", type=int, default=1000, help="number of dialogues")
parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same dialogues")
arguments = parser.parse_args()
if arguments.count < 0:
    parser.error(f"--count {arguments.count} is out of range: choose 0 or more")
for messages in islice(dialogues(arguments.seed), arguments.count):
    print(json.dumps({"messages": messages}))
