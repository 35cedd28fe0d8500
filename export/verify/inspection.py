"""Compares the graph of the page's Inspect with PyTorch.

>>> compare_inspect(model, Path("onnx/inspect.onnx"))                # doctest: +SKIP
1.2e-06
"""

from pathlib import Path

import torch

from export.formats.inspection import WRAPPERS
from export.verify.report import difference
from gptcore.engine.onnx_session import open_inference
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq


def compare_inspect(model: GPT | Seq2Seq, path: Path) -> float:
    """Return the largest difference between the graph's outputs and PyTorch's, on fixed ids.

    Of an output with values above 1, such as scores, it is relative to the largest of these.
    """
    inference = open_inference(path, "cpu", threads=1)
    length = min(16, model.config.block_size)
    sizes = {"input_ids": length, "decoder_input_ids": max(1, length - 3)}
    ids = {i.name: torch.arange(sizes[i.name])[None] for i in inference.get_inputs()}
    names = [output.name for output in inference.get_outputs()]
    got = inference.run(names, {name: tensor.numpy() for name, tensor in ids.items()})
    with torch.inference_mode():
        expected = WRAPPERS[type(model)](model.eval())(**ids)
    return max(
        difference(expected[name].numpy(), array) / max(1.0, float(expected[name].abs().max()))
        for name, array in zip(names, got)
    )
