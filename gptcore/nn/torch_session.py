"""A Session over PyTorch: the slow reference that every claim about ONNX is checked against.

>>> from gptcore.config import PRESETS
>>> from gptcore.nn import build_model
>>> session = TorchSession(build_model(PRESETS["tiny"]))
>>> session.prefill([1, 2, 3]).shape
(512,)
"""

import numpy as np
import torch

from gptcore.generate import Stop
from gptcore.nn.gpt import GPT, whole_sequence


class TorchSession:
    """Keeps the cache between `step`s; `prefill` always reads the whole prompt anew."""

    def __init__(self, model: GPT):
        self.model = model.eval()
        self.length = 0

    @torch.inference_mode()
    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        logits, self.cache = self.model(**whole_sequence(torch.tensor([ids])))
        self.length = len(ids)
        return logits[0, -1].numpy()

    @torch.inference_mode()
    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        logits, self.cache = self.model(
            input_ids=torch.tensor([[token_id]]),
            attention_mask=torch.ones(1, self.length + 1, dtype=torch.long),
            position_ids=torch.tensor([[self.length]]),
            past_key_values=self.cache,
        )
        self.length += 1
        return logits[0, -1].numpy()


class UncachedTorchSession(TorchSession):
    """The textbook loop: every step runs the whole sequence again."""

    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        self.ids = list(ids)
        return super().prefill(self.ids)

    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        return self.prefill([*self.ids, token_id])
