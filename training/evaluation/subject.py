"""The model to evaluate: a run (with PyTorch) or an exported folder (with ONNX Runtime).

>>> subject = open_subject(Path("runs/mine"), variant=None)          # doctest: +SKIP
>>> subject.name                                                     # doctest: +SKIP
'runs/mine: step 500, PyTorch'
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from gptcore.bundle import FACTS
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.engine.generate import Model, Piece, Reply, Request, Stop, generate
from gptcore.engine.replies import Replies
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import whole_sequence
from gptcore.nn.torch_session import TorchSession
from training.evaluation.bits_per_byte import Logits
from training.machine.devices import pick_device
from training.run.base import whole_weights
from training.run.directory import Run


class TorchModel:
    """A run's best checkpoint for gptcore.engine.generate; it keeps no cache between prompts."""

    def __init__(self, run: Run):
        checkpoint = run.best_checkpoint()
        self.config, self.tokenizer, self.step = run.model, run.tokenizer, checkpoint.facts["step"]
        self.device = pick_device()
        self.network = build_model(run.model).eval()
        load_weights(self.network, whole_weights(run, checkpoint), checkpoint.path)
        self.network.to(self.device)
        self.replies = Replies()
        self.recall = self.replies.recall

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        session, block_size = TorchSession(self.network), self.config.block_size
        reply = Reply(request, self.tokenizer, block_size)
        yield from generate(session, reply, stop)
        self.replies.remember(reply)

    @torch.inference_mode()
    def logits(self, ids: np.ndarray) -> np.ndarray:
        inputs = whole_sequence(torch.from_numpy(ids).to(self.device)[None])
        logits, _ = self.network(**inputs)
        return logits[0].cpu().numpy()


class Subject(NamedTuple):
    """The model to evaluate."""

    name: str
    is_chat: bool
    model: Model
    logits: Logits
    n_together: int  # number of replies that are computed at a time


def open_subject(path: Path, variant: str | None) -> Subject:
    """Open a run's best checkpoint, or a folder's `variant` (None: the fastest).

    Raises UserError for a translator, and for a run if a variant is named.
    """
    if (path / FACTS).is_file():
        return open_folder(path, variant)
    run = Run.load(path)
    if variant:
        raise UserError(f"--variant {variant}: only exported folders have variants: drop it")
    if isinstance(run.model, Seq2SeqConfig):
        raise UserError(f"{path} is a translator: export it, then use python -m export score")
    model = TorchModel(run)
    name = f"{path}: step {model.step:,}, PyTorch"
    return Subject(name, run.data.chat, model, model.logits, n_together=1)


def open_folder(path: Path, variant: str | None) -> Subject:
    # Imported here, because a run does not need ONNX Runtime.
    from gptcore.model import load_model

    model = load_model(path, variant=variant)
    slots = model.session().slots

    def logits(ids: np.ndarray) -> np.ndarray:
        slots.cut(0, 0)
        return slots.read(0, ids.tolist(), first=0)

    name = f"{path}: {model.bundle.name}, {model.variant}, ONNX Runtime"
    n_together = model.engine.slots.cache.n_slots
    return Subject(name, model.bundle.is_chat, model, logits, n_together)
