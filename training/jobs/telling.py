"""What every training prints before it starts: size, time and, where the plan foretells it, the
loss; and doubts about its settings.

>>> tell(run, task, plan.step_s, plan.seconds, plan.expectation)     # doctest: +SKIP
size      1,000,576 parameters in 4 layers, a context of 512 tokens
time      about 3.2 minutes for 254 steps, 16.0 passes over the text (22,000 tokens/s)
expected  2.10 bits per byte of unseen text, a fifth more or less; lower is better
"""

import torch

from gptcore.nn import build_model, count_parameters
from gptcore.system.wording import counted, duration
from training.loop import Task
from training.plan.given import doubts
from training.run.clock import SPARED
from training.run.directory import Run


def tell(run: Run, task: Task, step_s: float, seconds: float, expected: str) -> None:
    """Print size, time and expected loss, and a note on each setting that cannot be right.

    `step_s`: seconds per step. `seconds`: of the whole training. `expected`: "" if nothing is.
    """
    training, epochs = run.train, run.train.steps / task.steps_per_epoch
    with torch.device("meta"):
        n_parameters = count_parameters(build_model(run.model))
    trained = f"; adapters of rank {training.lora} are trained" if training.lora else ""
    print(
        f"size      {n_parameters:,} parameters in {counted(run.model.n_layer, 'layer')}, "
        f"a context of {run.model.block_size:,} tokens{trained}\n"
        f"time      about {duration(seconds)} for {counted(training.steps, 'step')}, "
        f"{epochs:.1f} passes over the text ({task.tokens_per_step / step_s:,.0f} tokens/s)"
    )
    if expected:
        print(f"expected  {expected}")
    n_tokens = task.steps_per_epoch * task.tokens_per_step
    if run.clock and seconds < SPARED * run.clock.budget_s:
        print(
            f"note: --minutes {float(run.options['minutes']):g} is more than this text needs: the "
            f"training ends after {counted(round(epochs), 'pass')} over it, as more would teach "
            f"it nothing new"
        )
    if run.data.needed_steps:
        share = run.data.needed_steps / training.steps
        print(
            f"note: --minutes {float(run.options['minutes']):g} is less than this text needs: "
            f"give it about {duration(share * seconds)}, in which it is read "
            f"{counted(round(share * epochs), 'time')}"
        )
    n_rows = run.data.n_pairs or round(task.steps_per_epoch * training.batch_size)
    for doubt in doubts(training, n_rows, n_tokens, epochs):
        print(f"note: {doubt}")
