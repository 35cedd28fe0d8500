"""Reads config.json and model.safetensors with transformers' own class, and compares logits.

>>> check_config(model, Path("models/nano"))                         # doctest: +SKIP
Check(name="logits of transformers' LlamaForCausalLM equal PyTorch's", cases=256, ...)
"""

from pathlib import Path

import numpy as np
import torch

from export.verify.report import TOLERANCE, Check, difference
from gptcore.nn.gpt import GPT, whole_sequence

CONFIG = "config.json"
NAME = "logits of transformers' LlamaForCausalLM equal PyTorch's"
LONGEST = 256  # number of positions that are compared
LIMIT = 5 * TOLERANCE  # its angles are in fp32, which at position 256 are off by 1e-5


@torch.inference_mode()
def check_config(model: GPT, folder: Path) -> Check:
    """Compare logits of random ids, long enough to reveal errors in config.json's positions.

    The Check is "not compared" if transformers cannot be imported.
    """
    try:
        from transformers import LlamaForCausalLM, logging
    except ImportError:
        return Check(NAME, 0, None, LIMIT)
    logging.disable_progress_bar()
    n = min(LONGEST, model.config.block_size)
    ids = np.random.default_rng(4).integers(0, model.config.vocab_size, (1, n))
    theirs = LlamaForCausalLM.from_pretrained(folder).eval()
    got = theirs(input_ids=torch.from_numpy(ids)).logits
    expected, _ = model(**whole_sequence(torch.from_numpy(ids)))
    return Check(NAME, n, difference(expected.numpy(), got.numpy()), LIMIT)
