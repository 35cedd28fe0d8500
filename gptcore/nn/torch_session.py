"""A Session over PyTorch: the slow reference that the ONNX session is compared with.

>>> from gptcore.config import PRESETS
>>> from gptcore.nn import build_model
>>> session = TorchSession(build_model(PRESETS["tiny"]))
>>> session.prefill([1, 2, 3]).shape
(512,)
"""

import numpy as np
import torch
from torch import Tensor

from gptcore.nn.gpt import GPT, whole_sequence


class TorchSession:
    """A Session whose cache lasts from `step` to `step`; `prefill` reads the whole prompt again.

    It computes on the model's device and returns logits (V,) as a numpy array.
    """

    def __init__(self, model: GPT):
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self.length = 0

    @torch.inference_mode()
    def prefill(self, ids: list[int]) -> np.ndarray:
        inputs = whole_sequence(torch.tensor([ids], device=self.device))
        logits, self.cache = self.model(**inputs)
        self.length = len(ids)
        return last_logits(logits)

    @torch.inference_mode()
    def step(self, token_id: int) -> np.ndarray:
        shape = (1, self.length + 1)
        logits, self.cache = self.model(
            input_ids=torch.tensor([[token_id]], device=self.device),
            attention_mask=torch.ones(shape, dtype=torch.long, device=self.device),
            position_ids=torch.tensor([[self.length]], device=self.device),
            past_key_values=self.cache,
        )
        self.length += 1
        return last_logits(logits)


def last_logits(logits: Tensor) -> np.ndarray:
    """Return the logits (V,) of the last position, from (1, T, V) on any device."""
    return logits[0, -1].float().cpu().numpy()
