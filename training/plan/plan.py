"""A plan: all settings of a training, how long it will take, and how good it will be.

>>> plan.epochs, plan.seconds, plan.expectation                      # doctest: +SKIP
(15.9, 192.0, '2.10 bits per byte of unseen text, a fifth more or less; lower is better')
"""

import math
from dataclasses import dataclass

from gptcore.config import ModelConfig
from gptcore.system.wording import counted
from training.machine.flops import parameters
from training.plan.scaling import (
    LEAST_BYTES,
    PARAMETERS_PER_BYTE,
    Facts,
    expected_bits_per_byte,
)
from training.run.clock import Clock
from training.run.config import TrainConfig

MIN_STEPS = 20  # fewest of a plan for a time, and of an advice
EVALUATIONS, EVALUATED = 4, 0.08  # most evaluations of a plan, and their share of its time


def divided(seconds: float, evaluation_s: float) -> tuple[int, float]:
    """Return how many evaluations a training has in a time, and the seconds left for its steps."""
    evaluations = max(1, min(EVALUATIONS, int(EVALUATED * seconds / evaluation_s)))
    return evaluations, seconds - evaluations * evaluation_s


@dataclass(frozen=True)
class Plan:
    """All settings of a training, and the times that they are based on."""

    depth: int
    model: ModelConfig
    training: TrainConfig
    facts: Facts
    step_s: float  # expected seconds per step
    evaluation_s: float  # expected seconds per evaluation, with samples and checkpoint
    clock: Clock | None = None  # of a plan for a time, which is fitted to it once more
    is_foretold: bool = True  # whether a pilot run has measured how hard the text is

    @property
    def tokens(self) -> int:
        row = self.training.row_length(self.model.block_size)
        return self.training.steps * self.training.batch_size * row

    @property
    def epochs(self) -> float:
        return self.tokens * self.facts.bytes_per_token / self.facts.n_bytes

    @property
    def seconds(self) -> float:
        """The expected seconds of the training, without the preparation."""
        evaluations = math.ceil(self.training.steps / self.training.eval_every)
        return self.training.steps * self.step_s + evaluations * self.evaluation_s

    @property
    def rule_bits_per_byte(self) -> float:
        """What the rule expects, by which sizes are chosen."""
        return expected_bits_per_byte(self.facts, self.model, self.tokens)

    @property
    def expected_bits_per_byte(self) -> float | None:
        """The figure for people: the rule's, or more after a pilot of a few seconds, from which the
        rule promises too much (scaling.Pilot). None if the text's hardness was not measured."""
        if not self.is_foretold:
            return None
        pilot, rule = self.facts.pilot, self.rule_bits_per_byte
        return max(rule, pilot.foretell(self.facts, self.tokens)) if pilot else rule

    @property
    def is_beyond_rule(self) -> bool:
        """Whether the text is so short, for itself or for the model, that over-fitting decides."""
        n_bytes = self.facts.n_bytes
        return n_bytes < LEAST_BYTES or parameters(self.model) > PARAMETERS_PER_BYTE * n_bytes

    @property
    def expectation(self) -> str:
        """The expected bits per byte for people, or ""."""
        bits = self.expected_bits_per_byte
        if bits is None:
            return ""
        return f"{bits:.2f} bits per byte of unseen text, a fifth more or less; lower is better"

    def table(self) -> str:
        """Return the plan as a table: what is chosen, its value, and the rule behind it."""
        model, training, n = self.model, self.training, parameters(self.model)
        drop = f", dropout {model.dropout:g}" if model.dropout else ""
        again = "; the steps are fitted to the clock once more before the rate falls"
        speed = training.batch_size * model.block_size / self.step_s
        rows = [
            (
                "size",
                f"depth {self.depth}: {n:,} parameters, {counted(model.n_layer, 'layer')} of "
                f"{model.n_embd}",
                "d layers of width 64 d; with --minutes, the d with the best expectation",
            ),
            (
                "text",
                f"{self.facts.n_bytes:,} bytes, vocabulary {model.vocab_size:,}, "
                f"context {model.block_size:,}",
                "the vocabulary grows as the cube root of the text",
            ),
            (
                "batch",
                f"{training.batch_size} x {model.block_size:,} tokens",
                "grows as the square root of the tokens",
            ),
            (
                "rate",
                f"{training.learning_rate:g}{drop}",
                "falls with depth; dropout grows with the epochs",
            ),
            (
                "steps",
                f"{training.steps:,}: {self.tokens:,} tokens, {self.epochs:.1f} epochs",
                "what the time allows, at most 60 epochs or 2M tokens; or 20 tokens per parameter",
            ),
            (
                "time",
                f"{self.seconds / 60:.1f} minutes at {speed:,.0f} tokens/s",
                "measured" + (again if self.clock else ""),
            ),
            *[("expected", self.expectation, "docs/scaling.md")] * self.is_foretold,
        ]
        width = max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:9} {value:{width}}  {rule}" for name, value, rule in rows)
