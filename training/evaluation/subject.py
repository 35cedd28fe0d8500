"""The model to evaluate: a run (with PyTorch) or an exported folder (with ONNX Runtime).

>>> subject = open_subject(Path("runs/mine"), variant=None)          # doctest: +SKIP
>>> subject.name                                                     # doctest: +SKIP
'runs/mine: step 500, PyTorch'
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from gptcore.bundle import FACTS
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.feeds import token_feeds
from gptcore.generate import Model
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import whole_sequence
from gptcore.nn.torch_session import TorchSession
from training.evaluation.bits_per_byte import Logits
from training.machine.devices import pick_device
from training.run.directory import Run


@contextmanager
def one_thread() -> Iterator[None]:
    """Enter a context in which PyTorch uses one thread.

    A second thread gains little for one row of a small model, and takes several times as long if
    the cores are busy.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchModel:
    """A run's best checkpoint for gptcore.generate; it keeps no cache between prompts."""

    def __init__(self, run: Run):
        checkpoint = run.best_checkpoint()
        self.config, self.tokenizer, self.step = run.model, run.tokenizer, checkpoint.facts["step"]
        self.device = pick_device()
        self.network = build_model(run.model).eval()
        load_weights(self.network, checkpoint.model, checkpoint.path)
        self.network.to(self.device)
        self.replies: dict[tuple[tuple[int, ...], str], list[int]] = {}

    @contextmanager
    def lease(self, ids: list[int]) -> Iterator[TorchSession]:
        yield TorchSession(self.network)

    def recall(self, before: list[int], text: str) -> list[int] | None:
        return self.replies.get((tuple(before), text))

    def remember(self, before: list[int], text: str, ids: list[int]) -> None:
        self.replies[tuple(before), text] = ids

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
    return Subject(name, run.data.chat, model, model.logits)


def open_folder(path: Path, variant: str | None) -> Subject:
    # Imported here, because a run does not need ONNX Runtime.
    from gptcore.onnx_session import OnnxSession, RunStop, load_model

    model = load_model(path, variant=variant)
    session = OnnxSession(model)

    def logits(ids: np.ndarray) -> np.ndarray:
        # The session's cache stays empty.
        return session.run(token_feeds(ids[None]), RunStop().options)[0][0]

    name = f"{path}: {model.bundle.name}, {model.variant}, ONNX Runtime"
    return Subject(name, model.bundle.is_chat, model, logits)
