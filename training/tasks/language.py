"""Language modelling as a training task: predict the next token of documents.

>>> task = LanguageModelling(run, load_shards(path))                 # doctest: +SKIP
>>> x, y = task.batch(0)                                             # doctest: +SKIP
"""

import shutil
from itertools import chain
from pathlib import Path

from torch import Tensor

from gptcore.nn.gpt import GPT, whole_sequence
from training.data.batches import Batches
from training.data.rows import Rows
from training.data.shards.folder import Shards
from training.evaluation.recall import recall
from training.evaluation.validation import evaluate, write_samples
from training.machine.processes import World
from training.run.base import FAMILY, keep_family
from training.run.directory import Run

TRAIN_SAMPLE_TOKENS = 1 << 14  # training tokens in each evaluation, which show over-fitting


class LanguageModelling:
    """Language modelling; implements training.loop.Task."""

    def __init__(self, run: Run, shards: Shards, world: World = World()):
        self.shards, self.world, self.init = shards, world, run.options.get("init")
        self.config, self.block_size = run.train, run.row_tokens
        self.tokenizer = shards.tokenizer
        self.train_rows = Rows(shards, "train", self.block_size)
        self.val_rows = Rows(shards, "val", self.block_size)
        # Of a small text all but one document is learned, so what is learned is shown.
        self.by_heart = run.data.few_held_out and run.data.chat
        self.shown_rows = self.train_rows if run.data.few_held_out else self.val_rows
        self.batches = Batches(self.train_rows, self.config.seed, self.config.batch_size)
        self.steps_per_epoch = len(self.train_rows) / self.config.batch_size
        self.tokens_per_step: float = self.config.batch_size * self.block_size

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer")
        shutil.rmtree(folder / FAMILY, ignore_errors=True)  # of a run that was begun here before
        if self.init:
            keep_family(Path(self.init), folder)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return this process's part of a step's batch: inputs and targets, each (B, T)."""
        near = [self.batches.near(max(0, s)) for s in (step, step - 1)]
        # Another process on this machine may still read the batch before.
        self.shards.hold(list(dict.fromkeys(chain(*near))))
        return self.batches.batch(step, self.world)

    def logits(self, model: GPT, x: Tensor) -> Tensor:
        return model(**whole_sequence(x))[0]

    def evaluate(self, model: GPT) -> dict[str, float]:
        """Measure the whole held-out split, and a sample of the training text.

        Of a few conversations, count the replies that are known by heart, too.
        """
        batch_size = min(8, self.config.micro_batch_size) * self.world.size
        result = evaluate(model, self.val_rows, batch_size, None, self.world)
        sample = self.train_rows.sample(TRAIN_SAMPLE_TOKENS)
        known = {"recall": recall(model, self.train_rows)} if self.by_heart else {}
        return {
            "val_loss": result.loss,
            "bits_per_byte": result.bits_per_byte,
            "train_loss": evaluate(model, self.train_rows, batch_size, sample, self.world).loss,
            **known,
        }

    def samples(self, model: GPT) -> list[tuple[str, str]]:
        return write_samples(model, self.shown_rows)
