"""Keeping to a time: the steps of a planned run are fitted to the clock once.

>>> config = TrainConfig(steps=1000, decay_share=0.4, eval_every=200)
>>> is_time_to_fit(config, done=599, left_s=300.0, budget_s=600.0)
False
>>> replanned(config, done=600, step_s=0.5, evaluation_s=10.0, left_s=300.0).steps
1127
"""

import dataclasses
import math

from training.config import TrainConfig


def is_time_to_fit(config: TrainConfig, done: int, left_s: float, budget_s: float | None) -> bool:
    """Whether the rate is about to fall: by the steps done, or by the clock. Without a budget
    it falls where the steps say."""
    if budget_s is None:
        return False
    return (
        done >= (1 - config.decay_share) * config.steps or left_s <= config.decay_share * budget_s
    )


def replanned(
    config: TrainConfig, done: int, step_s: float, evaluation_s: float, left_s: float
) -> TrainConfig:
    """The steps that fill the time left, in all of which the rate falls.

    Called once, at the step where `is_time_to_fit` is first true. Until then the rate did not
    depend on `steps`, so a run resumed from before that step with these settings does the same.
    """
    each = step_s + evaluation_s / config.eval_every
    left = max(round((left_s - evaluation_s) / each), math.ceil(done / 20), 1)
    steps = done + left
    return dataclasses.replace(config, steps=steps, decay_share=left / steps)
