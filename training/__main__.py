"""python -m training: see command.py."""

import sys

from gptcore.checks import need_packages
from gptcore.cores import let_waiting_threads_sleep

let_waiting_threads_sleep()
need_packages("torch", "requirements-train.txt")

from training.commands.train import main  # noqa: E402 (it imports torch)

if __name__ == "__main__":
    sys.exit(main())
