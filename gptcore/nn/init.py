"""Initialisation of a fresh model's parameters: one function per name in INITS.

>>> from gptcore.config import PRESETS
>>> from gptcore.nn import build_model
>>> round(float(build_model(PRESETS["nano"]).embed.weight.detach().std()), 2)
0.02
"""

from torch import nn

from gptcore.config import ModelConfig
from gptcore.nn.layers import packed


def normal(model: nn.Module, config: ModelConfig) -> None:
    """Draw matrices and tables from normal(0, 0.02) and set biases to zero; norms are unchanged."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith(".bias"):
            nn.init.zeros_(parameter)


def gpt2(model: nn.Module, config: ModelConfig) -> None:
    """Apply `normal`, with residual outputs scaled by 1 / sqrt(2 n_layer) (GPT-2, section 2.3)."""
    normal(model, config)
    depth = (2 * config.n_layer) ** -0.5
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.out.weight", "down.weight")):
            nn.init.normal_(parameter, std=0.02 * depth)


def xavier(model: nn.Module, config: ModelConfig) -> None:
    """Draw matrices and tables Xavier-uniform (Annotated Transformer, make_model).

    Each part of a packed matrix is drawn as a matrix of its own; the rest stays as PyTorch draws
    it.
    """
    sizes = packed(model)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            for part in parameter.split(sizes.get(parameter, len(parameter))):
                nn.init.xavier_uniform_(part)


def torch_default(model: nn.Module, config: ModelConfig) -> None:
    """Keep what PyTorch's constructors drew: uniform matrices, normal(0, 1) tables."""


INITS = {"gpt2": gpt2, "normal": normal, "xavier": xavier, "torch": torch_default}
