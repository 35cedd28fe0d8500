"""A translation Session over PyTorch: the slow reference that ONNX is compared with.

>>> translator = TorchTranslator(model, source_tokenizer, tokenizer)  # doctest: +SKIP
>>> translate(translator, "你好！").text                               # doctest: +SKIP
"""

from collections.abc import Sequence

import numpy as np
import torch

from gptcore.nn.attention import Cache
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.text.tokenizer import Tokenizer


class TorchTranslator:
    """A Seq2Seq module with its tokenizers, as gptcore.translation.search needs them."""

    def __init__(self, model: Seq2Seq, source_tokenizer: Tokenizer, tokenizer: Tokenizer):
        self.model, self.config = model.eval(), model.config
        self.source_tokenizer, self.tokenizer = source_tokenizer, tokenizer

    def session(self) -> "TorchTranslatorSession":
        return TorchTranslatorSession(self.model)


class TorchTranslatorSession:
    def __init__(self, model: Seq2Seq):
        self.model = model
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def begin(self, source_ids: list[int]) -> None:
        ids = torch.tensor([source_ids], device=self.device)
        self.source_mask = torch.ones_like(ids)
        self.memory = self.model.encode(ids, self.source_mask)
        self.cache: list[Cache] | None = None
        self.length = 0

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        n, rows = len(tokens), torch.tensor(parents, device=self.device)
        if self.cache is not None:
            self.cache = [(k[rows], v[rows]) for k, v in self.cache]
        self.length += 1
        logits, self.cache = self.model.decode(
            input_ids=torch.tensor(tokens, device=self.device)[:, None],
            attention_mask=torch.ones(n, self.length, dtype=torch.long, device=self.device),
            position_ids=torch.full((n, 1), self.length - 1, device=self.device),
            source_mask=self.source_mask.expand(n, -1),
            past_key_values=self.cache,
            memory=[(k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)) for k, v in self.memory],
        )
        return logits[:, -1].float().cpu().numpy()
