"""TrainConfig: everything about a training run that is not the model's shape.

>>> TrainConfig(steps=100, batch_size=8, micro_batch_size=4).n_micro_batches()
2
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from gptcore.checks import UserError, build, check_range, check_types
from gptcore.config import TRANSLATORS


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Raises UserError when a value makes no sense."""

    steps: int = 1000  # number of updates of the weights
    batch_size: int = 32  # sequences of block_size tokens in one step
    micro_batch_size: int = 32  # sequences computed at a time; fewer need less memory
    optimizer: Literal["muon", "adamw"] = "muon"  # Muon for matrices, AdamW for the rest; "adamw"
    learning_rate: float = 3e-3  # peak learning rate, of Muon and of AdamW
    warmup_steps: int = 50  # first steps, in which the learning rate rises
    decay_share: float = 0.5  # last share of the steps, in which the learning rate falls to 0
    weight_decay: float = 0.1  # weight decay of matrices and embeddings
    momentum: float = 0.95  # Muon's momentum
    beta1: float = 0.9  # AdamW's first beta
    beta2: float = 0.95  # AdamW's second beta
    grad_clip: float = 1.0  # largest norm of the gradient; a larger one is scaled down to it
    label_smoothing: float = 0.0  # share of the target that is spread over all tokens
    seed: int = 1  # seed of the weights, of the order of the data and of dropout
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"  # bfloat16 where it is clearly faster
    compile: Literal["auto", "on", "off"] = "auto"  # compile the blocks; auto: on long runs
    log_every: int = 10  # steps between lines of metrics.jsonl
    eval_every: int = 250  # steps between measurements on held-out text
    save_every: int = 250  # steps between checkpoints
    tensorboard: bool = False  # also write events for TensorBoard
    keep_checkpoints: int = 2  # number of newest checkpoints that are kept, beside the best
    parallel: Literal["ddp", "fsdp"] = "ddp"  # whole model in each process; "fsdp": a part in each

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "batch_size", "micro_batch_size", "log_every", "eval_every"):
            check_range(self, name, 1, 10**9)
        check_range(self, "save_every", 1, 10**9)
        check_range(self, "keep_checkpoints", 1, 10**6)
        check_range(self, "warmup_steps", 0, 10**9)
        check_range(self, "seed", 0, 2**63 - 1)
        check_range(self, "learning_rate", 0.0, 10.0)
        for name in ("decay_share", "weight_decay", "label_smoothing"):
            check_range(self, name, 0.0, 1.0)
        for name in ("momentum", "beta1", "beta2"):
            check_range(self, name, 0.0, 0.9999)
        check_range(self, "grad_clip", 1e-6, 1e6)
        if self.batch_size % min(self.micro_batch_size, self.batch_size):
            raise UserError(
                f"micro_batch_size={self.micro_batch_size} does not divide "
                f"batch_size={self.batch_size}: choose a divisor of it"
            )

    def n_micro_batches(self, n_processes: int = 1) -> int:
        """Into how many parts each process cuts its part of a batch."""
        return math.ceil(math.ceil(self.batch_size / n_processes) / self.micro_batch_size)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        return build(cls, values)


# The document's own; its optimizer is PyTorch's AdamW as it comes, without clipping.
WAYLAND = TrainConfig(
    steps=5000,
    batch_size=4,
    micro_batch_size=4,
    optimizer="adamw",
    learning_rate=1e-3,
    warmup_steps=0,
    decay_share=0.0,
    weight_decay=0.01,
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
# What goes with a preset, where that is not TrainConfig's default.
TRAININGS = {"wayland": WAYLAND, "wayland_post": WAYLAND} | dict.fromkeys(TRANSLATORS, TRANSLATOR)

# The named encoding that a preset's document uses.
ENCODINGS = {"wayland": "cl100k_base", "wayland_post": "cl100k_base", "annotated": "r50k_base"}
