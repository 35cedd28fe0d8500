"""Compares a serving graph with the portable graph of the same weights; one Check per claim.

>>> print_report(verify_serving(load_bundle("models/nano")))         # doctest: +SKIP
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from export.verify.report import TOLERANCE, USUAL_VALUE, Check, difference
from gptcore.bundle import Bundle
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import OnnxSession, open_inference, open_slots

LENGTHS = (1, 7, 30, 64)  # of the prompts read together, where the context allows
STEPS = 8
PART = 16  # tokens of a prompt read at a time


def verify_serving(bundle: Bundle) -> list[Check]:
    """Compare every serving graph of the folder with the portable graph that has its weights."""
    checks = []
    for variant, path in bundle.serving.items():
        checks += compare_serving(bundle.variants[variant], path, bundle.config, path.name)
    return checks


def compare_serving(
    portable: Path, serving: Path, config: ModelConfig, name: str = "serving graph"
) -> list[Check]:
    """Compare prompts of unequal lengths, read in parts, and the steps after them."""
    rng = np.random.default_rng(0)
    lengths = [min(n, config.block_size - STEPS) for n in LENGTHS]
    prompts = [rng.integers(0, config.vocab_size, n).tolist() for n in lengths]
    next_ids = rng.integers(0, config.vocab_size, (STEPS, len(prompts))).tolist()
    with tempfile.TemporaryDirectory() as folder:
        ours, reference = (open_exact(path, Path(folder)) for path in (serving, portable))
    slots = open_slots(ours, config, len(prompts))
    sessions = [OnnxSession(reference, config) for _ in prompts]
    read_worst = step_worst = largest = 0.0
    for slot, (prompt, session) in enumerate(zip(prompts, sessions)):
        expected = session.slots.read(0, prompt, first=0)
        parts = [prompt[at : at + PART] for at in range(0, len(prompt), PART)]
        got = np.concatenate([slots.read(slot, part, first=0) for part in parts])
        read_worst = max(read_worst, difference(expected, got))
        largest = max(largest, float(np.abs(expected).max()))
    for ids in next_ids:
        expected = np.stack([session.step(i) for session, i in zip(sessions, ids)])
        step_worst = max(step_worst, difference(expected, slots.step(ids)))
    n_read, n_steps = sum(lengths), STEPS * len(prompts)
    limit = TOLERANCE * max(1.0, largest / USUAL_VALUE)
    return [
        Check(f"{name}: prompts read in parts", n_read, read_worst, limit),
        Check(f"{name}: rows of unequal length", n_steps, step_worst, limit),
    ]


def open_exact(path: Path, folder: Path) -> ort.InferenceSession:
    """Open a copy, in `folder`, whose products of weights in few bits do not round their inputs.

    Rounded to 8 bits, a difference of 1e-6 in an input may be one of 1 in its integer.
    """
    proto = onnx.load(path)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(proto, folder / path.name)
    return open_inference(folder / path.name)
