"""The planner: it turns --minutes or --depth into all settings of a training.

    >>> facts = estimated_facts(survey(corpus))                                 # doctest: +SKIP
    >>> plan = make_plan(facts, DEPTHS, Speed(), 1800, settings=[])  # doctest: +SKIP
    >>> print(plan.table())                                              # doctest: +SKIP

The scaling rule is in training/plan/scaling.py. The planner measures the speed with a few real
steps of the sizes that look best. During the training, the number of steps is fitted to the clock
once, just before the learning rate begins to fall.
"""

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.system.wording import counted
from gptcore.text.tokenizer import Tokenizer
from training.data.shards.folder import Shards
from training.data.survey import Survey, bytes_per_token
from training.machine.flops import parameters
from training.machine.progress import waiting
from training.plan.pilot import (
    MEASURING,
    PILOT_DEPTH,
    Speed,
    evaluated_tokens,
    exact_facts,
    measured_hardness,
)
from training.plan.plan import EVALUATIONS, MIN_STEPS, Plan, divided
from training.plan.scaling import (
    DEPTHS,
    DEPTHS_OF_CHATS,
    MAX_EPOCHS,
    PARAMETERS_PER_BYTE,
    TOKENS_PER_PARAMETER,
    Facts,
    model_at,
    most_epochs,
    settings_at,
    vocabulary,
)
from training.run.clock import Clock
from training.run.settings import UNPLANNED, read_settings

AIM = 0.985  # share of the wanted time to plan for; the rest is for writing the results
PREPARING = 4.0  # tokenising takes about this many times as long as a first pass over the text
MAX_MEASURED = 4  # depths whose speed is measured


def estimated_facts(found: Survey) -> Facts:
    """Return the facts of a surveyed text."""
    tokenizer = Tokenizer.train(found.beginning, vocabulary(found.n_bytes))
    return Facts(found.n_bytes, bytes_per_token(found, tokenizer))


@waiting(MEASURING)
def make_plan(
    facts: Facts,
    depths: Iterable[int],
    speed: Speed,
    seconds: float | None,
    settings: list[str],
) -> Plan:
    """Return the plan with the lowest expected bits per byte among `depths`.

    `seconds`: the training time; None: TOKENS_PER_PARAMETER tokens per parameter. `settings`:
    the user's --set options. The speed of the best depth is measured, and the choice repeated,
    until the best depth has been measured.
    """
    depths = list(depths)
    if seconds is not None:
        limit = PARAMETERS_PER_BYTE * facts.n_bytes
        fitting = [d for d in depths if parameters(model_at(d, facts)) <= limit]
        depths = fitting or depths[:1]
    each = 1.0 if seconds is None else min(5.0, max(0.05, seconds * 0.01))
    first = min(depths, key=lambda depth: abs(depth - PILOT_DEPTH))
    if not speed.passes:
        tokens = facts.n_bytes / facts.bytes_per_token
        speed.measure(first, *settings_at(first, facts, tokens, settings), each)
    while True:
        plans = [plan_at(depth, facts, speed, seconds, settings) for depth in depths]
        if seconds is not None:  # if no depth has the time for MIN_STEPS, take the smallest
            plans = [plan for plan in plans if plan.training.steps >= MIN_STEPS] or plans[:1]
        best = min(plans, key=lambda plan: plan.rule_bits_per_byte)
        if best.depth in speed.passes or len(speed.passes) >= MAX_MEASURED:
            return best
        speed.measure(best.depth, best.model, best.training, each)


def plan_at(
    depth: int, facts: Facts, speed: Speed, seconds: float | None, settings: list[str]
) -> Plan:
    """Return the plan of one depth."""
    distinct = facts.n_bytes / facts.bytes_per_token
    tokens = min(TOKENS_PER_PARAMETER * parameters(model_at(depth, facts)), MAX_EPOCHS * distinct)
    evaluations = EVALUATIONS
    for _ in range(1 if seconds is None else 4):  # iterate: batch and dropout depend on tokens
        model, training = settings_at(depth, facts, tokens, settings, evaluations)
        step_s = speed.step_seconds(depth, model, training.batch_size)
        evaluation_s = speed.evaluation_seconds(depth, model, evaluated_tokens(facts))
        if seconds is not None:
            evaluations, left = divided(seconds, evaluation_s)
            n_steps = max(left / step_s, 1)
            affordable_tokens = n_steps * training.batch_size * model.block_size
            tokens = min(affordable_tokens, most_epochs(distinct) * distinct)
    return Plan(depth, model, training, facts, step_s, evaluation_s)


class Planner:
    """Plans a training twice: before its text is tokenised, and after.

    The first plan chooses depth and vocabulary; the second one knows the exact number of tokens
    and the time left.
    """

    def __init__(
        self, minutes: float | None, depth: int | None, settings: list[str], looked_s: float = 0.0
    ):
        """`looked_s`: seconds that a first pass over the text has taken, which --minutes include"""
        self.started = time.perf_counter() - looked_s
        self.minutes, self.settings, self.speed = minutes, settings, Speed()
        self.depths: Sequence[int] = DEPTHS if depth is None else [depth]
        self.seed = read_settings(settings, ModelConfig(), UNPLANNED)[1].seed

    @property
    def budget_s(self) -> float | None:
        """The seconds left of --minutes, or None without --minutes."""
        if self.minutes is None:
            return None
        return self.minutes * 60 * AIM - (time.perf_counter() - self.started)

    def clock(self, plan: Plan) -> Clock | None:
        """Return a clock with the time left, or None without --minutes."""
        if self.budget_s is None:
            return None
        distinct = plan.facts.n_bytes / plan.facts.bytes_per_token
        tokens = most_epochs(distinct) * distinct
        most = max(1, round(tokens / (plan.training.batch_size * plan.model.block_size)))
        return Clock(self.budget_s, plan.evaluation_s / plan.step_s, most)

    def shape(self, found: Survey) -> ModelConfig:
        """Return the model's shape before tokenising; it leaves time for that."""
        budget_s = self.budget_s
        if budget_s is not None:
            looking_s = time.perf_counter() - self.started
            budget_s = max(budget_s - PREPARING * looking_s, budget_s / 4)
        self.deepen(found.n_chats > 0)
        plan = make_plan(estimated_facts(found), self.depths, self.speed, budget_s, self.settings)
        self.depths = [plan.depth]
        return plan.model

    def deepen(self, is_chat: bool) -> None:
        """Leave out the shapes that are too flat for conversations, where nobody chose one."""
        if is_chat and self.depths == DEPTHS:
            self.depths = DEPTHS_OF_CHATS

    def plan(self, shards: Shards) -> Plan:
        """Return the plan for tokenised text. Raises UserError if the time is too short."""
        self.deepen(shards.is_chat)  # finished shards have no survey
        facts = exact_facts(shards)
        settings = [*self.settings, f"vocab_size={shards.tokenizer.vocab_size}"]
        seconds = self.minutes * 60 if self.minutes else None
        guess = make_plan(facts, self.depths, self.speed, seconds, settings)
        is_foretold = not guess.is_beyond_rule
        if is_foretold:
            dtype = guess.training.dtype
            facts = measured_hardness(facts, shards, self.speed, dtype, guess.seconds)
        plan = make_plan(facts, self.depths, self.speed, self.budget_s, settings)
        if self.minutes is not None and plan.training.steps < MIN_STEPS:
            more_s = plan.seconds + MIN_STEPS * plan.step_s - (self.budget_s or 0.0)
            least = math.ceil(self.minutes + more_s / 60)
            raise UserError(
                f"--minutes {self.minutes:g} is too few for this text: reading and tokenising it "
                f"left time for {counted(plan.training.steps, 'step')}; give at least {least}"
            )
        return dataclasses.replace(plan, clock=self.clock(plan), is_foretold=is_foretold)
