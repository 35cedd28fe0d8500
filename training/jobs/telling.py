"""What every training says before the wait: three lines, and doubts about its settings.

>>> tell(run, task, plan.step_s, plan.seconds, plan.expected)        # doctest: +SKIP
size      1,000,576 parameters; 254 steps, which read the text 16.0 times
time      about 3.2 minutes at 22,000 tokens/s, as measured just now
expected  2.10 bits per byte of new text
"""

import torch

from gptcore.nn import build_model, count_parameters
from training.loop import Task
from training.plan.given import doubts
from training.run.directory import Run


def tell(run: Run, task: Task, step_s: float, seconds: float, expected: str) -> None:
    """Print size, time and the expected loss, and what cannot be right.

    `step_s`: seconds per step. `seconds`: those of the whole training.
    """
    training, epochs = run.train, run.train.steps / task.steps_per_epoch
    with torch.device("meta"):
        n_parameters = count_parameters(build_model(run.model))
    print(
        f"size      {n_parameters:,} parameters; {training.steps:,} steps, which read the text "
        f"{epochs:.1f} times\n"
        f"time      about {duration(seconds)} at {task.tokens_per_step / step_s:,.0f} tokens/s, as "
        f"measured just now\n"
        f"expected  {expected}"
    )
    for doubt in doubts(training, round(task.steps_per_epoch * training.batch_size)):
        print(f"note: {doubt}")


def duration(seconds: float) -> str:
    """Return seconds for people.

    >>> duration(44.4), duration(192.0), duration(8000.0)
    ('44 seconds', '3.2 minutes', '2.2 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
