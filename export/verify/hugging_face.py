"""Reads config.json and model.safetensors with transformers' own class, and compares logits.

>>> check_config(ids, logits, Path("models/nano"), limit=1e-4)       # doctest: +SKIP
Check(name="logits of transformers' LlamaForCausalLM equal PyTorch's", cases=256, ...)
"""

from pathlib import Path

import numpy as np
import torch

from export.verify.report import difference
from gptcore.checks import UserError, shorten
from gptcore.config import ModelConfig
from gptcore.facts import Check
from gptcore.families import CLASSES
from gptcore.system.files import read_json
from training.machine.progress import waiting

CONFIG = "config.json"
NAME = "logits of transformers' {} equal PyTorch's"
LONGEST = 256  # number of positions that are compared
SLACK = 5  # its angles are in fp32, which at position 256 are off by 1e-5


def text_ids(config: ModelConfig) -> np.ndarray:
    """Return random ids (1, T), as many as reveal errors in config.json's positions."""
    n = min(LONGEST, config.block_size)
    return np.random.default_rng(4).integers(0, config.vocab_size, (1, n))


@torch.inference_mode()
def check_config(ids: np.ndarray, expected: np.ndarray, folder: Path, limit: float) -> Check:
    """Compare logits (1, T, V) of ids (1, T); SLACK times the limit is allowed.

    The Check is "not compared" if transformers cannot be imported. Raises UserError if it refuses
    the settings.
    """
    name = NAME.format(CLASSES[read_json(folder / CONFIG)["model_type"]])
    with waiting("transformers opens and reads"):
        try:
            from transformers import AutoModelForCausalLM, logging

            logging.disable_progress_bar()
            theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
        except ImportError:  # it imports parts of itself when they are used
            return Check(name, 0, SLACK * limit)
        except Exception as error:  # each class checks its settings in its own way
            reason = shorten(" ".join(str(error).split()), 200)
            raise UserError(
                f"transformers cannot read this {CONFIG} ({type(error).__name__}: {reason}): "
                f"correct it"
            ) from None
        got = theirs(input_ids=torch.from_numpy(ids)).logits
    return Check(name, ids.size, SLACK * limit, difference(expected, got.numpy()))
