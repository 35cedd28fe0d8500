"""TrainConfig: the settings of a training run, except the model's shape.

>>> TrainConfig(steps=100, batch_size=8, micro_batch_size=4).n_micro_batches()
2
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from gptcore.checks import UserError, check_range, check_types
from gptcore.config import TRANSLATORS


@dataclass(frozen=True)
class TrainConfig:
    """The training settings. Raises UserError for a value of a wrong type or out of range."""

    steps: int = 1000  # number of updates of the weights
    batch_size: int = 32  # sequences of block_size tokens in one step
    micro_batch_size: int = 32  # sequences per forward and backward pass; fewer need less memory
    row_tokens: int = 0  # tokens of a training row; 0: the model's block_size
    keep: float = 0.0  # with --init: share of the old weights in the result, against forgetting
    lora: int = 0  # rank of the adapters that alone are trained (LoRA); 0: all weights are
    optimizer: Literal["muon", "adamw"] = "muon"  # muon: Muon for matrices, else AdamW
    learning_rate: float = 3e-3  # peak learning rate of Muon and of AdamW
    warmup_steps: int = 50  # number of first steps in which the learning rate rises
    decay_share: float = 0.5  # share of the steps, at the end, in which the learning rate falls
    weight_decay: float = 0.1  # weight decay of matrices and embeddings
    momentum: float = 0.8  # Muon's momentum
    beta1: float = 0.8  # AdamW's decay of the first moment
    beta2: float = 0.99  # AdamW's decay of the second moment, and Muon's of that of a row
    grad_clip: float = 10.0  # maximum gradient norm; a larger gradient is scaled down
    label_smoothing: float = 0.0  # share of the target probability spread over all tokens
    seed: int = 1  # seed of the initial weights, the data order and dropout
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"  # auto: bfloat16 if clearly faster
    compile: Literal["auto", "on", "off"] = "auto"  # compile the blocks; auto: in long runs
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"  # saves memory; auto: if needed
    log_every: int = 10  # steps between lines of metrics.jsonl
    eval_every: int = 250  # steps between evaluations on held-out text
    save_every: int = 250  # steps between checkpoints
    tensorboard: bool = False  # also write events for TensorBoard
    keep_checkpoints: int = 2  # number of newest checkpoints to keep, besides the best
    parallel: Literal["ddp", "fsdp"] = "ddp"  # each process has the whole model; fsdp: a part

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "batch_size", "micro_batch_size", "log_every", "eval_every"):
            check_range(self, name, 1, 10**9)
        check_range(self, "save_every", 1, 10**9)
        check_range(self, "keep_checkpoints", 1, 10**6)
        check_range(self, "warmup_steps", 0, 10**9)
        check_range(self, "row_tokens", 0, 2**31)
        if self.row_tokens == 1:
            raise UserError("row_tokens=1 leaves nothing to predict from: choose 0, or at least 2")
        check_range(self, "lora", 0, 4096)
        check_range(self, "seed", 0, 2**63 - 1)
        check_range(self, "learning_rate", 0.0, 10.0)
        for name in ("decay_share", "weight_decay", "label_smoothing"):
            check_range(self, name, 0.0, 1.0)
        for name in ("momentum", "beta1", "beta2"):
            check_range(self, name, 0.0, 0.9999)
        check_range(self, "grad_clip", 1e-6, 1e6)
        check_range(self, "keep", 0.0, 0.99)
        if self.lora and self.keep:
            raise UserError("keep mixes whole weights, and lora trains adapters: drop one of them")
        if self.lora and self.parallel == "fsdp":
            raise UserError("parallel=fsdp splits whole weights: train adapters with parallel=ddp")
        if self.batch_size % min(self.micro_batch_size, self.batch_size):
            raise UserError(
                f"micro_batch_size={self.micro_batch_size} does not divide "
                f"batch_size={self.batch_size}: choose a divisor of it"
            )

    def n_micro_batches(self, n_processes: int = 1) -> int:
        """Return the number of micro-batches in each process's part of a batch."""
        return math.ceil(math.ceil(self.batch_size / n_processes) / self.micro_batch_size)

    def row_length(self, block_size: int) -> int:
        """Return the tokens of a row of a model with this context."""
        return self.row_tokens or block_size

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# At the rate of new weights, trained ones forget what they knew; and a mean with what they were
# before brings much of it back (docs/log.md, 2026-11-27).
FINE_TUNING = TrainConfig(learning_rate=1e-3, keep=0.4)
# Adapters start at zero and can do little harm: they need no smaller rate, and no decay. Muon would
# make B's first, nearly empty updates as large as all others. Few rows at a time cost no speed, as
# the frozen matrices need no gradient, and half the memory.
ADAPTERS = TrainConfig(
    batch_size=8,
    micro_batch_size=2,
    optimizer="adamw",
    learning_rate=1e-3,
    weight_decay=0.0,
)
# The settings of the article (docs/textbook.md): PyTorch's default AdamW, without clipping.
WAYLAND = TrainConfig(
    steps=5000,
    batch_size=4,
    micro_batch_size=4,
    optimizer="adamw",
    learning_rate=1e-3,
    warmup_steps=0,
    decay_share=0.0,
    weight_decay=0.01,
    beta1=0.9,
    beta2=0.999,
    grad_clip=1e6,
    dtype="float32",
)
TRANSLATOR = TrainConfig(
    steps=4000,
    batch_size=128,
    micro_batch_size=128,
    learning_rate=5e-3,
    warmup_steps=200,
    label_smoothing=0.1,
    log_every=50,
    eval_every=1000,
    save_every=500,
)
# Training settings of the presets that do not use TrainConfig's defaults.
TRAININGS = {"wayland": WAYLAND, "wayland_post": WAYLAND} | dict.fromkeys(TRANSLATORS, TRANSLATOR)

# The tiktoken encoding of each preset that follows a published text.
ENCODINGS = {"wayland": "cl100k_base", "wayland_post": "cl100k_base", "annotated": "r50k_base"}
