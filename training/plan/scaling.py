"""The scaling rule: settings and expected bits per byte for a depth and an amount of text.

One number sets a model's size: depth d means d layers of width 64 d. All other settings follow
from the rules below; docs/scaling.md lists the runs that they were fitted to, and the errors.

>>> corpus = Facts(n_bytes=5_000_000, bytes_per_token=3.4)
>>> model = model_at(6, corpus)
>>> model.n_embd, model.n_inner, model.vocab_size, model.block_size
(384, 1024, 4096, 512)
"""

import math
from dataclasses import dataclass

from gptcore.config import ModelConfig
from training.machine.flops import parameters
from training.run.config import TrainConfig
from training.run.settings import UNPLANNED, names_of, read_settings

DEPTHS = range(1, 25)
# A reply that begins with what was asked about takes two layers: one finds which kind of question
# it is, the other looks up its object (docs/log.md, 2026-11-28).
DEPTHS_OF_CHATS = DEPTHS[1:]
HEAD_SIZE = 64  # width of an attention head
MIN_VOCABULARY, MAX_VOCABULARY = 512, 32_768
MIN_CONTEXT = 256  # tokens; a conversation of several turns fits

# Expected bits per byte: hardness * (E + (A / N^a + B / D')^b) for N parameters and D' effective
# bytes (the form of arXiv 2001.08361, eq. 1.5, plus a floor E). Repeated bytes count less (arXiv
# 2305.16264, eq. 5). A pilot run on the text measures its hardness.
E, A, ALPHA, B, BETA = 0.25, 1837.0, 0.7, 2.288e6, 0.25
REPEATS = 15.0  # R*: epochs after which a repeated text is worth 1 / e of new text
MANY_EPOCHS = 60  # 4 R*: most epochs of a plan with --minutes; further ones teach almost nothing
ENOUGH_TOKENS = 2_000_000  # a tiny text is read more often for these: fewer leave it unlearned
# From a shorter run than the fitted ones the rule would promise too much. These fall by a power of
# the bytes: 0.12 for stories, 0.14 for conversations (docs/scaling.md, 0.4 and 1.6M tokens).
LEAST_TOKENS, SLOPE = 400_000, 0.12
LEAST_BYTES = 400_000  # of the texts that the rule was fitted to
PARAMETERS_PER_BYTE = 2  # upper limit of the model's size, as the rule ignores over-fitting

# Training settings, from the sweeps in docs/scaling.md.
BATCH = 2.5  # tokens per batch, divided by the square root of all training tokens
LEARNING_RATE, RATE_BY_DEPTH = 0.02, 0.75  # the learning rate is 0.02 depth^-0.75
DECAY_SHARE = 0.4
MICRO_BATCH_TOKENS = 8192
TOKENS_PER_PARAMETER = 20  # training tokens of a plan with --depth (arXiv 2203.15556, table 3)
MAX_EPOCHS = 16  # most epochs of a plan with --depth
DROPOUTS = ((4, 0.0), (8, 0.1), (16, 0.2), (math.inf, 0.3))  # (up to this many epochs, dropout)


@dataclass(frozen=True)
class Facts:
    """Facts about a corpus on which the rule depends."""

    n_bytes: int  # bytes of training text
    bytes_per_token: float
    hardness: float = 1.0  # measured over expected bits per byte of a pilot run
    pilot: "Pilot | None" = None  # that run, if it was shorter than those the rule was fitted to


@dataclass(frozen=True)
class Pilot:
    """A pilot run, from which the rule would promise too much."""

    bits_per_byte: float
    n_bytes: float  # effective bytes that it read

    def foretell(self, facts: Facts, tokens: float) -> float:
        """Return the bits per byte after `tokens` tokens, by the slope of short runs alone."""
        n_bytes = effective_bytes(tokens * facts.bytes_per_token, facts.n_bytes)
        return self.bits_per_byte * (n_bytes / self.n_bytes) ** -SLOPE


def most_epochs(tokens: float) -> float:
    """Return how often a text of so many tokens is read, at the most."""
    return max(MANY_EPOCHS, ENOUGH_TOKENS / tokens)


def vocabulary(n_bytes: int, n_embd: int = 256) -> int:
    """Return the vocabulary size: it grows with the cube root of the text.

    The width limits it, so that the output head does not outweigh the layers; by default it is that
    of a model of middling size, for a first estimate.
    """
    wanted = min(26 * n_bytes ** (1 / 3), 32 * n_embd)
    return min(max(power_of_two(wanted), MIN_VOCABULARY), MAX_VOCABULARY)


def power_of_two(x: float) -> int:
    """Return the power of two that is nearest to x on a logarithmic scale."""
    return 2 ** round(math.log2(max(x, 1.0)))


def model_at(depth: int, facts: Facts, epochs: float = 1.0) -> ModelConfig:
    """Return the model settings of a depth, for a text that is read `epochs` times."""
    n_embd = HEAD_SIZE * depth
    tokens = facts.n_bytes / facts.bytes_per_token
    block_size = 512 if depth <= 8 else 1024
    while block_size > MIN_CONTEXT and block_size > tokens / 256:
        block_size //= 2  # a short text must still fill some hundreds of blocks
    dropout = dropout_for(epochs)
    return ModelConfig(
        vocab_size=vocabulary(facts.n_bytes, n_embd),
        block_size=block_size,
        n_layer=depth,
        n_head=depth,
        n_kv_head=max((n for n in range(1, depth // 2 + 1) if depth % n == 0), default=1),
        n_embd=n_embd,
        n_inner=math.ceil(n_embd * 8 / 3 / 32) * 32,
        dropout=dropout,
        embedding_dropout=dropout,
    )


def dropout_for(epochs: float) -> float:
    """Return the dropout for a number of epochs; it is 0 for up to four.

    It does not apply to attention weights: drawing a random number for each of them would cost
    more than the rest of the step.
    """
    return next(dropout for limit, dropout in DROPOUTS if epochs <= limit)


def batch_at(model: ModelConfig, facts: Facts, tokens: float) -> int:
    """Return the batch size in sequences of a training on `tokens` tokens.

    It is at most the text's own number of sequences: more would repeat some of them in a step.
    """
    n_rows = int(facts.n_bytes / facts.bytes_per_token / model.block_size)
    wanted = max(2, power_of_two(BATCH * math.sqrt(tokens)) // model.block_size)
    return max(1, min(wanted, n_rows))


def settings_at(
    depth: int, facts: Facts, tokens: float, settings: list[str], evaluations: int = 1
) -> tuple[ModelConfig, TrainConfig]:
    """Return model and training settings for `tokens` tokens; `settings` override the rule."""
    model = model_at(depth, facts, tokens * facts.bytes_per_token / facts.n_bytes)
    batch, chosen = batch_at(model, facts, tokens), names_of(settings)
    model, asked = read_settings(settings, model, UNPLANNED)
    if "batch_size" in chosen:
        batch = asked.batch_size
    elif batch > asked.micro_batch_size:
        batch -= batch % asked.micro_batch_size
    steps = max(1, round(tokens / (batch * model.block_size)))
    steps = asked.steps if "steps" in chosen else steps
    return read_settings(settings, model, training_at(model, depth, steps, batch, evaluations))


def training_at(
    model: ModelConfig, depth: int, steps: int, batch_size: int, evaluations: int
) -> TrainConfig:
    """Return the settings of a training of so many steps and evaluations."""
    evaluate_every = math.ceil(steps / evaluations)
    micro = min(batch_size, max(1, MICRO_BATCH_TOKENS // model.block_size))
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        micro_batch_size=next(n for n in range(micro, 0, -1) if batch_size % n == 0),
        learning_rate=round(LEARNING_RATE * depth**-RATE_BY_DEPTH, 5),
        warmup_steps=min(50, steps // 10),
        decay_share=DECAY_SHARE,
        log_every=max(1, min(10, steps // 20)),
        eval_every=evaluate_every,
        save_every=evaluate_every,
    )


def expected_bits_per_byte(facts: Facts, model: ModelConfig, tokens: float) -> float:
    """Return the expected held-out bits per byte after training on `tokens` tokens."""
    n_bytes = effective_bytes(tokens * facts.bytes_per_token, facts.n_bytes)
    return facts.hardness * (E + (A / parameters(model) ** ALPHA + B / n_bytes) ** BETA)


def effective_bytes(read: float, distinct: float) -> float:
    """Return how many new bytes are worth as much as `read` bytes of a text of `distinct` bytes.

    Source: arXiv 2305.16264, eq. 5.
    """
    if read <= distinct:
        return read
    return distinct * (1 + REPEATS * (1 - math.exp(-(read / distinct - 1) / REPEATS)))
