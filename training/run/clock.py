"""Keeping to a time: the steps of a planned run are fitted to the clock once.

>>> config = TrainConfig(steps=1000, decay_share=0.4, eval_every=200)
>>> clock = Clock(budget_s=600.0, evaluation_steps=20.0)
>>> clock.is_due(config, done=599, seconds=300.0), clock.is_due(config, done=600, seconds=300.0)
(False, True)
>>> clock.fitted(config, done=600, step_s=0.5, evaluations=[10.0], seconds=300.0).steps
1127
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from gptcore.checks import check_types
from training.run.config import TrainConfig


@dataclass(frozen=True)
class Clock:
    """The time that a run has, its pauses left out; a run has none once it is fitted to it."""

    budget_s: float
    evaluation_steps: float  # how many steps an evaluation takes, where none has been timed

    def __post_init__(self) -> None:
        check_types(self)

    def is_due(self, config: TrainConfig, done: int, seconds: float) -> bool:
        """Whether the rate is about to fall: by the steps done, or by the clock."""
        left_s = self.budget_s - seconds
        by_clock = left_s <= config.decay_share * self.budget_s
        return by_clock or done >= (1 - config.decay_share) * config.steps

    def fitted(
        self,
        config: TrainConfig,
        done: int,
        step_s: float,
        evaluations: Sequence[float],
        seconds: float,
    ) -> TrainConfig:
        """The steps that fill the time left, in all of which the rate falls.

        Called once, at the step where it is first due. Until then the rate did not depend on
        `steps`, so a run resumed from before that step with these settings does the same.
        """
        evaluation_s = mean(evaluations) if evaluations else self.evaluation_steps * step_s
        each = step_s + evaluation_s / config.eval_every
        left_s = self.budget_s - seconds - evaluation_s
        left = max(round(left_s / each), math.ceil(done / 20), 1)
        steps = done + left
        return dataclasses.replace(config, steps=steps, decay_share=left / steps)
