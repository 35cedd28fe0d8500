"""The only torch code of the core: `build_model(config)` gives the module.

>>> from gptcore.config import PRESETS
>>> count_parameters(build_model(PRESETS["nano"]))
1000576
"""

from torch import nn

from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq

ARCHITECTURES = {ModelConfig: GPT, Seq2SeqConfig: Seq2Seq}


def build_model(config: ModelConfig) -> nn.Module:
    """A freshly initialised model of this shape."""
    return ARCHITECTURES[type(config)](config)


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
