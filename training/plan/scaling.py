"""The scaling rule: from a depth and an amount of text to a shape, a recipe and what to expect.

One number sets a model's size: depth d means d layers of width 64 d. Everything else follows by
the rules below; docs/scaling.md says which runs they were fitted to, and how well they fit.

>>> corpus = Facts(n_bytes=5_000_000, bytes_per_token=3.4)
>>> model = model_at(6, corpus)
>>> model.n_embd, model.n_inner, model.vocab_size, model.block_size
(384, 1024, 4096, 512)
"""

import math
from dataclasses import dataclass

from gptcore.config import ModelConfig
from training.run.config import TrainConfig

DEPTHS = range(1, 25)
HEAD_SIZE = 64
MIN_VOCABULARY, MAX_VOCABULARY = 512, 32_768

# Expected bits per byte: hardness * (E + (A / N^a + B / D')^b) with N parameters and D' bytes read
# (the form of arXiv 2001.08361, eq. 1.5, above a floor), of which repeated ones count less (arXiv
# 2305.16264, eq. 5). A pilot run on the text gives its hardness.
E, A, ALPHA, B, BETA = 0.25, 1837.0, 0.7, 2.288e6, 0.25
REPEATS = 15.0  # R*: epochs after which a repeated text teaches 1 / e of what a new one does
PARAMETERS_PER_BYTE = 2  # no larger model for a small text: the law knows nothing of over-fitting

# The recipe, from the sweeps in docs/scaling.md.
BATCH = 2.5  # tokens in a batch, times the square root of all tokens
LEARNING_RATE, RATE_BY_DEPTH = 0.02, 0.75
DECAY_SHARE = 0.4
MICRO_BATCH_TOKENS = 8192
TOKENS_PER_PARAMETER = 20  # of a plan by depth (arXiv 2203.15556, table 3)
MAX_EPOCHS = 16  # of a plan by depth
DROPOUTS = ((4, 0.0), (8, 0.1), (16, 0.2), (math.inf, 0.3))  # by epochs


@dataclass(frozen=True)
class Facts:
    """What the rule needs to know about a corpus."""

    n_bytes: int  # to train on
    bytes_per_token: float
    hardness: float = 1.0


def vocabulary(n_bytes: int, n_embd: int) -> int:
    """Grows with the cube root of the text, but the head shall not outweigh the layers."""
    wanted = min(26 * n_bytes ** (1 / 3), 32 * n_embd)
    return min(max(power_of_two(wanted), MIN_VOCABULARY), MAX_VOCABULARY)


def power_of_two(x: float) -> int:
    """The nearest one, on a scale of ratios."""
    return 2 ** round(math.log2(max(x, 1.0)))


def model_at(depth: int, facts: Facts, epochs: float = 1.0) -> ModelConfig:
    """The shape of this depth, for a text that is read so many times."""
    n_embd = HEAD_SIZE * depth
    tokens = facts.n_bytes / facts.bytes_per_token
    block_size = 512 if depth <= 8 else 1024
    while block_size > 64 and block_size > tokens / 256:
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
    """None for a text that is read a few times; attention weights are never dropped, since
    a number drawn for each of them costs more than the rest of the step."""
    return next(dropout for limit, dropout in DROPOUTS if epochs <= limit)


def batch_at(model: ModelConfig, tokens: float) -> int:
    """Sequences in a step of a training that reads so many tokens."""
    return max(4, power_of_two(BATCH * math.sqrt(tokens)) // model.block_size)


def training_at(
    model: ModelConfig, depth: int, tokens: float, batch_size: int, evaluations: int
) -> TrainConfig:
    """The recipe for reading so many tokens."""
    steps = max(1, round(tokens / (batch_size * model.block_size)))
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


def parameters(model: ModelConfig) -> int:
    """Of the matrices, the tied table of embeddings counted once."""
    return sum(rows * columns for rows, columns in matrices(model)) + (
        model.vocab_size * model.n_embd
    )


def matrices(model: ModelConfig) -> list[tuple[int, int]]:
    """The blocks' matrices, which Muon updates."""
    C, kv = model.n_embd, 2 * model.n_kv_head * model.head_dim
    block = [(C, C + kv), (C, C), (C, 2 * model.n_inner), (model.n_inner, C)]
    return block * model.n_layer


def pass_flops(model: ModelConfig) -> float:
    """Of a token's forward and backward pass (arXiv 2204.02311, appendix B)."""
    return 6 * parameters(model) + 12 * model.n_layer * model.n_embd * model.block_size


def update_flops(model: ModelConfig) -> float:
    """Of Muon's update: five rounds of three products with the short side's square."""
    return sum(5 * (4 * max(m) * min(m) ** 2 + 2 * min(m) ** 3) for m in matrices(model))


def expected_bits_per_byte(facts: Facts, model: ModelConfig, tokens: float) -> float:
    """Of held-out text, after training on so many tokens."""
    n_bytes = effective_bytes(tokens * facts.bytes_per_token, facts.n_bytes)
    return facts.hardness * (E + (A / parameters(model) ** ALPHA + B / n_bytes) ** BETA)


def effective_bytes(read: float, distinct: float) -> float:
    """What the bytes read are worth in new ones (arXiv 2305.16264, eq. 5)."""
    if read <= distinct:
        return read
    return distinct * (1 + REPEATS * (1 - math.exp(-(read / distinct - 1) / REPEATS)))
