"""The clock of a planned run, which fits its steps once to the time left; and a stop-watch.

>>> config = TrainConfig(steps=1000, decay_share=0.4, eval_every=200)
>>> clock = Clock(budget_s=600.0, evaluation_steps=20.0)
>>> clock.is_due(config, done=599, seconds=300.0), clock.is_due(config, done=600, seconds=300.0)
(False, True)
>>> clock.fitted(config, done=600, step_s=0.5, evaluations=[10.0], seconds=300.0).steps
1127
"""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean

from training.run.config import TrainConfig

SPARED = 0.9  # of the time or the steps; what a plan leaves of them is no chance


@dataclass(frozen=True)
class Clock:
    """The time budget of a run, without pauses; a run loses its clock once it is fitted."""

    budget_s: float  # seconds of training
    evaluation_steps: float  # an evaluation's estimated time, in steps; used until one is timed
    most_steps: int = 0  # that the text is worth, whatever the time allows; 0: any number

    def needed(self, steps: int) -> int | None:
        """Return the steps that the text is worth, if those that the time allows are fewer."""
        return self.most_steps if steps < SPARED * self.most_steps else None

    def is_due(self, config: TrainConfig, done: int, seconds: float) -> bool:
        """Return whether the learning rate is about to fall, by steps done or by time used.

        `done`: steps done; `seconds`: training time used.
        """
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
        """Return the settings with as many steps as fill the time; all remaining ones decay.

        `step_s`: seconds per step; `evaluations`: seconds of each evaluation so far; `seconds`:
        training time used. The loop calls this once, when is_due is first true. Before that the
        learning rate does not depend on `steps`, so a run resumed from an earlier step with the
        new settings repeats the same steps.
        """
        evaluation_s = mean(evaluations) if evaluations else self.evaluation_steps * step_s
        each = step_s + evaluation_s / config.eval_every
        left_s = self.budget_s - seconds - evaluation_s
        left = max(round(left_s / each), math.ceil(done / 20), 1)
        if self.most_steps:
            left = max(1, min(left, self.most_steps - done))
        steps = done + left
        return dataclasses.replace(config, steps=steps, decay_share=left / steps)


class Watch:
    """The stop-watch of a training: its time, and what its steps and evaluations take of it."""

    def __init__(self, seconds: float, n_recent: int):
        """`seconds`: the time until now, without pauses; `n_recent`: steps that the speed is of."""
        self.began = time.perf_counter() - seconds
        self.recent = deque[float](maxlen=n_recent)
        self.n_steps, self.stepping_s = 0, 0.0  # without the first step: it may compile
        self.evaluations: list[float] = []

    @property
    def seconds(self) -> float:
        """The training time until now, without pauses."""
        return time.perf_counter() - self.began

    @property
    def step_s(self) -> float:
        """The seconds of a step, once there were two."""
        return self.stepping_s / self.n_steps

    def speed(self, tokens_per_step: float) -> int:
        """Return the tokens per second of the last steps."""
        return round(len(self.recent) * tokens_per_step / sum(self.recent))

    @contextmanager
    def step(self) -> Iterator[None]:
        """Enter a context that is timed as a step."""
        started = time.perf_counter()
        yield
        took = time.perf_counter() - started
        if self.recent:
            self.n_steps, self.stepping_s = self.n_steps + 1, self.stepping_s + took
        self.recent.append(took)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Enter a context that is timed as an evaluation."""
        started = time.perf_counter()
        yield
        self.evaluations.append(time.perf_counter() - started)
