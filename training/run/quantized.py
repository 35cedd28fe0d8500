"""Weights read back from the file of quantised ones, the only ones in a shipped folder.

>>> weights = read_quantized(Path("models/default/onnx/model_int8.onnx"), config)   # doctest: +SKIP
>>> weights["blocks.0.attention.qkv.weight"].shape                                  # doctest: +SKIP
torch.Size([480, 288])

They are the rounded values: a training that goes on from them has lost what rounding to 8 bits
loses, about a thousandth of the bits per byte.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.nn import build_model

MATRICES = ("attention.qkv", "attention.out", "feed_forward.gate_up", "feed_forward.down")


def read_quantized(path: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Return the parameters by our names.

    Raises UserError if the file does not have them all, or if the model's embeddings are not tied.
    """
    if not config.tied_embeddings:
        raise UserError(
            f"{path} is of a model with tied_embeddings=false, whose weights are not read back: "
            f"name a folder with model.safetensors"
        )
    graph = onnx.load(str(path)).graph
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in found:  # scales in half precision
            found[node.output[0]] = found[node.input[0]].astype(np.float32)
    # The graph computes its layers in order.
    matrices = [matrix(node, found) for node in graph.node if node.op_type == "MatMulNBits"]
    names = [f"blocks.{i}.{name}.weight" for i in range(config.n_layer) for name in MATRICES]
    named = dict(zip([*names, "embed.weight"], matrices))
    with torch.device("meta"):
        wanted = dict(build_model(config).named_parameters())
    named |= {name: values for name, values in found.items() if name in wanted}
    if {name: w.shape for name, w in wanted.items()} != {n: v.shape for n, v in named.items()}:
        raise UserError(f"{path} does not have all weights in blocks of 4 or 8 bits")
    return {name: torch.from_numpy(named[name].copy()) for name in wanted}


def matrix(node: onnx.NodeProto, found: dict[str, np.ndarray]) -> np.ndarray:
    """Return the matrix of a MatMulNBits, (n_out, n_in), fp32."""
    facts = {attribute.name: attribute.i for attribute in node.attribute}
    integers, scales, *zeros = (found[name] for name in node.input[1:4] if name)
    bits, n_in = facts["bits"], facts["K"]
    if bits == 4:
        integers = np.stack([integers & 15, integers >> 4], -1).reshape(*integers.shape[:-1], -1)
        zeros = [np.stack([z & 15, z >> 4], -1) for z in zeros]
    scales = scales.reshape(len(integers), -1)
    middle = np.full(scales.shape, 2 ** (bits - 1), np.uint8)
    zero = zeros[0].reshape(len(integers), -1)[:, : scales.shape[1]] if zeros else middle
    weights = scales[..., None].astype(np.float32) * (integers.astype(np.float32) - zero[..., None])
    return weights.reshape(len(weights), -1)[:, :n_in]
