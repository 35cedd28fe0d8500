"""Compares a decoder's ONNX graph with PyTorch on the real weights; one Check per claim.

>>> print_report(verify(load_bundle("models/nano")))                 # doctest: +SKIP
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import onnxruntime as ort
import torch
from safetensors.torch import load_file

from export.verify.llama_config import CONFIG, check_config
from export.verify.report import TOLERANCE, USUAL_VALUE, Check, difference
from export.verify.serving import verify_serving
from gptcore.bundle import ONNX, WEIGHTS, Bundle, check_whole
from gptcore.engine.onnx_session import OnnxSession, open_inference
from gptcore.feeds import decoder_feeds, no_cache
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import GPT
from gptcore.nn.llama import from_llama, is_llama
from gptcore.nn.torch_session import TorchSession
from training.machine.progress import waiting

BATCHES, LENGTHS, PASTS = (1, 2, 3, 8), (1, 2, 7, 64), (0, 1, 3, 64, 191)
GREEDY_TOKENS = 200
TOKENS_AT_ONCE = 1024


@waiting("comparing the graph with PyTorch")
def verify(bundle: Bundle) -> list[Check]:
    """Compare onnx/model.onnx with PyTorch on model.safetensors; one Check per claim."""
    model = load_reference(bundle)
    inference = open_inference(bundle.path / ONNX, "cpu", threads=1)
    names = [o.name for o in inference.get_outputs()]

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        return inference.run(names, feeds)

    checks = [
        *check_matrix(model, run),
        check_every_token(model, inference),
        check_greedy(model, inference),
        check_cached(run, model),
        check_left_padding(run, model),
    ]
    checks += verify_serving(bundle)
    if (bundle.path / CONFIG).is_file():
        checks.append(check_config(model, bundle.path))
    if bundle.facts.imported is None:
        return checks
    # Imported weights may give values in the hundreds, for which fp32 is not accurate to 1e-4.
    scale = max(1.0, largest_value(model) / USUAL_VALUE)
    return [check._replace(limit=check.limit * scale) for check in checks]


@torch.inference_mode()
def largest_value(model: GPT) -> float:
    """Return the largest of the logits, keys and values for a text of random ids."""
    n = min(64, model.config.block_size)
    ids = np.random.default_rng(3).integers(0, model.config.vocab_size, (1, n))
    return max(float(np.abs(part).max()) for part in run_torch(model, ids, no_cache(model.config)))


def load_reference(bundle: Bundle) -> GPT:
    """Return the PyTorch model with the weights of the folder's model.safetensors."""
    check_whole(bundle)
    path = bundle.path / WEIGHTS
    model, weights = build_model(bundle.config), load_file(path)
    if is_llama(bundle.config):
        weights = from_llama(weights, bundle.config)
    load_weights(model, weights, path)
    return model.eval()


Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


@torch.inference_mode()
def check_matrix(model: GPT, run: Run) -> list[Check]:
    """Compare logits and cache for each combination of batch, sequence and past that fits."""
    rng = np.random.default_rng(0)
    logits_worst = cache_worst = 0.0
    cases = [
        (batch, length, past)
        for batch, length, past in product(BATCHES, LENGTHS, PASTS)
        if past + length <= model.config.block_size
    ]
    for batch, length, past in cases:
        ids = rng.integers(0, model.config.vocab_size, (batch, past + length))
        cache = run_torch(model, ids[:, :past], no_cache(model.config, batch))[1:]
        expected = run_torch(model, ids[:, past:], cache)
        got = run(decoder_feeds(ids[:, past:], cache))
        logits_worst = max(logits_worst, difference(expected[0], got[0]))
        for a, b in zip(expected[1:], got[1:]):
            cache_worst = max(cache_worst, difference(a, b))
    return [
        Check(
            "logits equal PyTorch's, batch x sequence x past", len(cases), logits_worst, TOLERANCE
        ),
        Check(
            "cache equals PyTorch's, batch x sequence x past", len(cases), cache_worst, TOLERANCE
        ),
    ]


@torch.inference_mode()
def check_every_token(model: GPT, inference: ort.InferenceSession) -> Check:
    """Compare the first layer's keys and values, for every token and at every position.

    Random ids use few rows of a large embedding, so the other checks would miss a wrong row.
    """
    rows, worst = every_id(model.config.vocab_size, model.config.block_size), 0.0
    for ids in np.array_split(rows, -(-rows.size // TOKENS_AT_ONCE)):
        expected = run_torch(model, ids, no_cache(model.config, len(ids)))[1:3]
        names = ["present.0.key", "present.0.value"]
        got = inference.run(names, decoder_feeds(ids, no_cache(model.config, len(ids))))
        worst = max(worst, *(difference(a, b) for a, b in zip(expected, got)))
    return Check("every token, every position", rows.size, worst, TOLERANCE)


def every_id(vocab_size: int, block_size: int) -> np.ndarray:
    """Return ids (n, block_size) that contain every id and have every position."""
    n_rows = -(-vocab_size // block_size)
    return (np.arange(n_rows * block_size) % vocab_size).reshape(n_rows, block_size)


def check_greedy(model: GPT, inference: ort.InferenceSession) -> Check:
    """Compare the greedy tokens of both sessions, after prompts of one to twenty tokens."""
    n_different = 0
    prompts = [[3], [5, 8, 13], list(range(20, 40))[: model.config.block_size // 2]]
    for prompt in prompts:
        n = min(GREEDY_TOKENS, model.config.block_size - len(prompt))
        expected = greedy(TorchSession(model), prompt, n)
        got = greedy(OnnxSession(inference, model.config), prompt, n)
        n_different += sum(a != b for a, b in zip(expected, got))
    return Check(f"{GREEDY_TOKENS} greedy tokens equal PyTorch's", len(prompts), n_different, 0)


def greedy(session: TorchSession | OnnxSession, prompt: list[int], n: int) -> list[int]:
    ids = [int(session.prefill(prompt).argmax())]
    while len(ids) < n:
        ids.append(int(session.step(ids[-1]).argmax()))
    return ids


def check_cached(run: Run, model: GPT) -> Check:
    """Compare the logits of a text read token by token, with the cache, and read at once."""
    length = min(96, model.config.block_size)
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (2, length))
    whole = run(decoder_feeds(ids, no_cache(model.config, 2)))[0]
    cache, worst = no_cache(model.config, 2), 0.0
    for t in range(length):
        logits, *cache = run(decoder_feeds(ids[:, t : t + 1], cache))
        worst = max(worst, difference(whole[:, t : t + 1], logits))
    return Check("cached equals uncached", length, worst, TOLERANCE)


def check_left_padding(run: Run, model: GPT) -> Check:
    """Compare rows padded on the left, and the step after them, with each row alone."""
    rng = np.random.default_rng(2)
    longest = min(40, model.config.block_size - 1)
    lengths = [min(n, longest) for n in (5, 17, 1, longest)]
    rows = [rng.integers(0, model.config.vocab_size, n) for n in lengths]
    width = max(map(len, rows))
    ids = np.stack([np.pad(row, (width - len(row), 0)) for row in rows])
    mask = np.stack([np.pad(np.ones_like(row), (width - len(row), 0)) for row in rows])
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    inputs = decoder_feeds(ids, no_cache(model.config, len(rows)))
    logits, *cache = run(inputs | {"attention_mask": mask, "position_ids": positions})
    following = np.full((len(rows), 1), 7)
    mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
    inputs = decoder_feeds(following, cache)
    after, *_ = run(inputs | {"attention_mask": mask, "position_ids": positions[:, -1:] + 1})
    worst = 0.0
    for i, row in enumerate(rows):
        alone, *cache = run(decoder_feeds(row[None], no_cache(model.config)))
        worst = max(worst, difference(alone[0], logits[i, width - len(row) :]))
        alone, *_ = run(decoder_feeds(following[:1], cache))
        worst = max(worst, difference(alone[0], after[i]))
    return Check("left-padded rows equal single rows", len(rows), worst, TOLERANCE)


def run_torch(model: GPT, ids: np.ndarray, cache: list[np.ndarray]) -> list[np.ndarray]:
    """Return from PyTorch what the graph returns."""
    if ids.shape[1] == 0:
        return [np.zeros(0), *cache]
    inputs = [torch.from_numpy(a) for a in decoder_feeds(ids, cache).values()]
    past = list(zip(inputs[3::2], inputs[4::2]))
    logits, caches = model(*inputs[:3], past)
    return [logits.numpy(), *(part.numpy() for cache in caches for part in cache)]
