"""The only torch code of the core: `build_model(config)` returns a torch module.

>>> from gptcore.config import PRESETS
>>> count_parameters(build_model(PRESETS["nano"]))
1000576
"""

from typing import overload

from torch import nn

from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq


@overload
def build_model(config: Seq2SeqConfig) -> Seq2Seq: ...  # type: ignore[overload-overlap]
@overload
def build_model(config: ModelConfig) -> GPT: ...
def build_model(config: ModelConfig) -> GPT | Seq2Seq:
    """Build a freshly initialised decoder, or an encoder-decoder for a Seq2SeqConfig."""
    return Seq2Seq(config) if isinstance(config, Seq2SeqConfig) else GPT(config)


def count_parameters(model: nn.Module) -> int:
    """Count the parameters, frozen ones too, and shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
