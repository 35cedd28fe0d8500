"""Compares a serving graph with the portable graph of the same weights; one Check per claim.

>>> print_report(verify_serving(load_bundle("models/nano"), 1e-4))   # doctest: +SKIP
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from export.verify.report import difference
from gptcore.bundle import Bundle
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import OnnxSession, open_inference, open_slots
from gptcore.facts import Check
from training.machine.progress import progress, waiting

LENGTHS = (1, 7, 30, 64)  # of the prompts read together, where the context allows
STEPS = 8
PART = 16  # tokens of a prompt read at a time


def verify_serving(bundle: Bundle, limit: float) -> list[Check]:
    """Compare every serving graph of the folder with the portable graph that has its weights."""
    checks = []
    for variant, path in bundle.serving.items():
        portable = bundle.variants[variant]
        checks += compare_serving(portable, path, bundle.config, limit, path.name)
    return checks


def compare_serving(
    portable: Path, serving: Path, config: ModelConfig, limit: float, name: str = "serving graph"
) -> list[Check]:
    """Compare prompts of unequal lengths, read in parts, and the steps after them.

    limit: the largest difference of logits that is allowed.
    """
    rng = np.random.default_rng(0)
    n_steps = min(STEPS, config.block_size - 1)
    lengths = [min(n, config.block_size - n_steps) for n in LENGTHS]
    prompts = [rng.integers(0, config.vocab_size, n).tolist() for n in lengths]
    next_ids = rng.integers(0, config.vocab_size, (n_steps, len(prompts))).tolist()
    read, stepped = said_by(portable, config, prompts, next_ids)
    read_worst = step_worst = 0.0
    with waiting(f"opening {name}"):
        slots = open_slots(open_exact(serving), config, len(prompts))
    for slot, (prompt, expected) in enumerate(zip(prompts, read)):
        parts = [prompt[at : at + PART] for at in range(0, len(prompt), PART)]
        got = np.concatenate([slots.read(slot, part, first=0) for part in parts])
        read_worst = max(read_worst, difference(expected, got))
    steps = progress(zip(next_ids, stepped), f"{name}: steps", len(next_ids), leave=False)
    for ids, expected in steps:
        step_worst = max(step_worst, difference(expected, slots.step(ids)))
    return [
        Check(f"{name}: prompts read in parts", sum(lengths), limit, read_worst),
        Check(f"{name}: rows of unequal length", n_steps * len(prompts), limit, step_worst),
    ]


def said_by(
    portable: Path, config: ModelConfig, prompts: list[list[int]], next_ids: list[list[int]]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the portable graph's logits: (T, V) of each prompt, (n, V) of each step of all.

    They are kept so that only one of the two graphs is in memory.
    """
    with waiting(f"opening {portable.name}"):
        inference = open_exact(portable)
    sessions = [OnnxSession(inference, config) for _ in prompts]
    read = [session.slots.read(0, ids, first=0) for session, ids in zip(sessions, prompts)]
    steps = progress(next_ids, f"{portable.name}: steps", leave=False)
    return read, [np.stack([s.step(i) for s, i in zip(sessions, ids)]) for ids in steps]


def open_exact(path: Path) -> ort.InferenceSession:
    """Open a graph so that its products of weights in few bits do not round their inputs.

    Rounded to 8 bits, a difference of 1e-6 in an input may be one of 1 in its integer.
    """
    proto = onnx.load(path, load_external_data=False)
    levels = [a for node in proto.graph.node for a in node.attribute if a.name == "accuracy_level"]
    for level in levels:
        level.i = 0
    return open_inference(path, content=proto.SerializeToString() if levels else None)
