"""Compares a decoder's ONNX graph with PyTorch on the real weights; one Check per claim.

>>> print_report(verify(load_bundle("models/nano")))                 # doctest: +SKIP

PyTorch computes first; what it says is kept, its model is freed, and then ONNX Runtime opens the
graph: memory holds the weights once. A model that is too large for all cases within FLOPS is
compared on fewer and smaller ones; the report says how many.
"""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
import torch

from export.formats.feeds import decoder_feeds
from export.formats.graph import part_of
from export.formats.model_folder import check_not_small
from export.formats.weights import Weights
from export.verify.hugging_face import CONFIG, check_config, text_ids
from export.verify.report import LOGITS, difference
from export.verify.rounding import in_float64, limit_of
from export.verify.serving import verify_serving
from gptcore.bundle import ONNX, Bundle
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import OnnxSession, open_inference
from gptcore.facts import Check
from gptcore.families import family
from gptcore.feeds import no_cache
from gptcore.nn import count_parameters
from gptcore.nn.checkpoint import model_of
from gptcore.nn.gpt import GPT
from gptcore.nn.llama import from_llama
from gptcore.nn.torch_session import TorchSession
from gptcore.system.cores import n_cores
from training.machine.progress import progress, waiting

BATCHES, LENGTHS, PASTS = (1, 2, 3, 8), (1, 2, 7, 64), (0, 1, 3, 64, 191)
PROMPTS = ([3], [5, 8, 13], list(range(20, 40)))
GREEDY_TOKENS = 200
CACHED_TOKENS = 96
TOKENS_AT_ONCE, ROW = 1024, 64
FLOPS = 1e12  # of PyTorch for one check, about 20 seconds on two cores; 20M parameters need less
STEP = 20  # a decoding step takes as long as a prompt of about so many tokens
BYTES = 1e9  # most memory for what PyTorch said

Case = tuple[int, int, int]  # batch, length and past
Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


Outputs = tuple[np.ndarray, int, list[np.ndarray]]  # ids (B, past + T), past; logits and cache


class Limits(NamedTuple):
    """The largest differences that are allowed, from how far PyTorch itself rounds."""

    logits: float
    cache: float


class Expected(NamedTuple):
    """PyTorch's results for some inputs."""

    cases: list[Outputs]
    greedy: list[tuple[list[int], list[int]]]  # prompts, and the tokens after each
    text: tuple[np.ndarray, np.ndarray] | None  # ids and logits, where there is a config.json
    limits: Limits


def verify(bundle: Bundle) -> list[Check]:
    """Compare onnx/model.onnx with PyTorch on model.safetensors; one Check per claim."""
    with waiting("PyTorch opens the weights"):
        model = load_reference(bundle)
    expected = expect(model, is_text_wanted=(bundle.path / CONFIG).is_file())
    n_parameters = count_parameters(model)
    del model
    gc.collect()  # the first model of a process is in a cycle of frames that torch leaves behind
    checks = compare_graph(bundle, expected, n_parameters)
    if expected.text:
        checks.append(check_config(*expected.text, bundle.path, expected.limits.logits))
    return checks + verify_serving(bundle, expected.limits.logits)


def compare_graph(bundle: Bundle, expected: Expected, n_parameters: int) -> list[Check]:
    """Compare the portable graph with PyTorch's results, and with itself."""
    path, config, limits = bundle.path / ONNX, bundle.config, expected.limits
    # A second thread would slow a small model down.
    is_large = len(expected.cases) < len(cases_of(config, 0))
    with waiting("ONNX Runtime opens the graph"):
        inference = open_inference(path, "cpu", threads=n_cores() if is_large else 1)
    run = partial(inference.run, [output.name for output in inference.get_outputs()])
    n_cached = min(CACHED_TOKENS, affordable(n_parameters) // (2 * STEP))
    checks = [
        *check_matrix(expected, run),
        check_greedy(expected, inference, config),
        check_cached(run, config, limits.logits, max(n_cached, 2)),
        check_left_padding(run, config, limits.logits),
    ]
    del inference, run
    checks.insert(2, check_every_token(bundle, limits.cache))
    return checks


def load_reference(bundle: Bundle, n_layer: int | None = None) -> GPT:
    """Return the PyTorch model, or its first layers, with the weights of the folder."""
    check_not_small(bundle)
    weights = Weights(bundle.path)
    config = replace(bundle.config, n_layer=n_layer or bundle.config.n_layer)
    if family(config):
        tensors = from_llama(weights, config)
    else:
        layers = tuple(f"blocks.{n}." for n in range(config.n_layer))
        names = [n for n in weights if n.startswith(layers) or not n.startswith("blocks.")]
        tensors = {name: weights[name] for name in names}
    return model_of(config, tensors, bundle.path).eval()


# ------------------------------------------------------------------ PyTorch's half


@torch.inference_mode()
def expect(model: GPT, is_text_wanted: bool) -> Expected:
    """Compute all of PyTorch's results; the model is not needed afterwards."""
    config, n_parameters, rng = model.config, count_parameters(model), np.random.default_rng(0)
    cases = []
    for batch, length, past in progress(
        cases_of(config, n_parameters), "PyTorch: logits and cache", unit=" cases"
    ):
        ids = rng.integers(0, config.vocab_size, (batch, past + length))
        cache = run_torch(model, ids[:, :past], no_cache(config, batch))[1:]
        cases.append((ids, past, run_torch(model, ids[:, past:], cache)))
    rounded = zip(rounding(model, cases), reordering(model, cases))
    limits = Limits(*(limit_of(max(far, apart / 2)) for far, apart in rounded))
    if not all(map(math.isfinite, limits)):
        raise UserError(
            "the model's own results are not finite: its weights are broken, train again"
        )
    texts = []
    for prompt in PROMPTS:
        prompt = prompt[: config.block_size // 2]
        n = min(GREEDY_TOKENS, affordable(n_parameters) // (STEP * len(PROMPTS)))
        n = min(max(n, 2), config.block_size - len(prompt))
        texts.append((prompt, greedy(TorchSession(model), prompt, n)))
    text = None
    if is_text_wanted:
        ids = text_ids(config)
        text = ids, run_torch(model, ids, no_cache(config))[0]
    return Expected(cases, texts, text, limits)


def rounding(model: GPT, cases: list[Outputs]) -> tuple[float, float]:
    """Return how far PyTorch's logits and cache in fp32 are from those in float64, at the most."""
    logits_worst = cache_worst = 0.0
    with in_float64(model):
        for ids, past, outputs in progress(cases, "PyTorch in 64 bits", unit=" cases"):
            before = [part[:, :, :past] for part in outputs[1:]]
            exact = run_torch(model, ids[:, past:], before)
            logits, *cache = map(difference, outputs, exact)
            logits_worst, cache_worst = max(logits_worst, logits), max(cache_worst, *cache)
    return logits_worst, cache_worst


def reordering(model: GPT, cases: list[Outputs]) -> tuple[float, float]:
    """Return how far PyTorch's logits and cache are from those of each row by itself, at the most.

    A row by itself is added up in another order. In a few places a model makes a rounding a hundred
    times larger, and one order may meet such a place where another does not.
    """
    logits_worst = cache_worst = 0.0
    several = [case for case in cases if len(case[0]) > 1]
    for ids, past, outputs in progress(several, "PyTorch, row by row", unit=" cases"):
        for i in range(len(ids)):
            rows = [part[i : i + 1] for part in outputs]
            before = [part[:, :, :past] for part in rows[1:]]
            alone = run_torch(model, ids[i : i + 1, past:], before)
            logits, *cache = map(difference, rows, alone)
            logits_worst, cache_worst = max(logits_worst, logits), max(cache_worst, *cache)
    return logits_worst, cache_worst


def affordable(n_parameters: int) -> int:
    """Return how many tokens a model of this size reads within FLOPS."""
    return int(FLOPS / (2 * n_parameters))


def cases_of(config: ModelConfig, n_parameters: int) -> list[Case]:
    """Return the combinations of batch, length and past that fit the context and the budgets.

    The smallest are taken first.
    """

    def n_tokens(case: Case) -> int:
        batch, length, past = case
        return batch * (length + past)

    def n_bytes(case: Case) -> int:
        batch, length, _ = case
        n_cache = 2 * config.n_layer * config.n_kv_head * config.head_dim
        return 4 * (batch * length * config.vocab_size + n_tokens(case) * n_cache)

    every = product(BATCHES, LENGTHS, PASTS)
    cases = sorted((c for c in every if c[1] + c[2] <= config.block_size), key=n_tokens)
    flops = accumulate(2 * n_parameters * n_tokens(case) for case in cases)
    kept = accumulate(map(n_bytes, cases))
    n = sum(f <= FLOPS and b <= BYTES for f, b in zip(flops, kept))
    return cases[: max(n, 1)]


def greedy(session: TorchSession | OnnxSession, prompt: list[int], n: int) -> list[int]:
    ids = [int(session.prefill(prompt).argmax())]
    for _ in progress(range(n - 1), "greedy tokens", unit=" tokens", leave=False):
        ids.append(int(session.step(ids[-1]).argmax()))
    return ids


# ------------------------------------------------------------------ the graph's half


def check_matrix(expected: Expected, run: Run) -> list[Check]:
    """Compare logits and cache for each combination of batch, sequence and past."""
    logits_worst = cache_worst = 0.0
    for ids, past, (logits, *cache) in progress(
        expected.cases, "ONNX Runtime: logits and cache", unit=" cases"
    ):
        # The graph gets PyTorch's cache: of its own it would have the rounding of the past too.
        before = [np.ascontiguousarray(part[:, :, :past]) for part in cache]
        got = run(decoder_feeds(ids[:, past:], before))
        logits_worst = max(logits_worst, difference(logits, got[0]))
        for a, b in zip(cache, got[1:], strict=True):
            cache_worst = max(cache_worst, difference(a, b))
    n, limits, of = len(expected.cases), expected.limits, "batch x sequence x past"
    return [
        Check(f"{LOGITS}, {of}", n, limits.logits, logits_worst),
        Check(f"cache equals PyTorch's, {of}", n, limits.cache, cache_worst),
    ]


@torch.inference_mode()
def check_every_token(bundle: Bundle, limit: float) -> Check:
    """Compare the first layer's keys and values, for every token and at every position.

    Random ids use few rows of a large embedding, so the other checks would miss a wrong row. Both
    sides compute the first layer alone.
    """
    with waiting("opening the first layer"):
        keys = part_of(bundle.path / ONNX, ("present.0.key", "present.0.value"))
        model = load_reference(bundle, 1)
        inference = open_inference(bundle.path / ONNX, content=keys)
    for part in (model, model.blocks[0]):  # what follows the keys and values is not computed
        part.head = part.feed_forward = torch.nn.Identity()
    names = [value.name for value in inference.get_inputs()]
    rows, positions = every_id(model.config.vocab_size, model.config.block_size)
    worst = 0.0
    parts = np.arange(len(rows)) // max(TOKENS_AT_ONCE // rows.shape[1], 1)
    for part in progress(np.unique(parts), "every token, every position", unit=" parts"):
        ids = rows[parts == part]
        feeds = decoder_feeds(ids, no_cache(model.config, len(ids)))
        feeds["position_ids"] = positions[parts == part]
        tensors = [torch.from_numpy(array) for array in feeds.values()]
        _, [(key, value)] = model(*tensors[:3])
        got = inference.run(None, {name: feeds[name] for name in names})
        worst = max(worst, difference(key.numpy(), got[0]), difference(value.numpy(), got[1]))
    return Check("every token, every position", rows.size, limit, worst)


def every_id(vocab_size: int, block_size: int, row: int = ROW) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and positions, (n, T) each, that contain every id and every position.

    T is `row`, or block_size if that is less.
    """
    length = min(block_size, row)
    n_rows = -(-max(vocab_size, block_size) // length)
    counted = np.arange(n_rows * length).reshape(n_rows, length)
    return counted % vocab_size, counted % block_size


def check_greedy(expected: Expected, inference: ort.InferenceSession, config: ModelConfig) -> Check:
    """Count PyTorch's greedy tokens that are not the graph's, after prompts of 1 to 20 tokens.

    The graph reads PyTorch's tokens. If the logits of two tokens differ by less than their
    limit, either may be taken.
    """
    n_different, tie = 0, expected.limits.logits
    for prompt, ids in expected.greedy:
        session = OnnxSession(inference, config)
        logits = session.prefill(prompt)
        for i in progress(ids, "ONNX Runtime: greedy tokens", unit=" tokens", leave=False):
            n_different += not (logits[i] >= logits.max() - tie)
            if session.slots.lengths[0] < config.block_size:
                logits = session.step(i)
    n_most = max(len(ids) for _, ids in expected.greedy)
    return Check(f"{n_most} greedy tokens equal PyTorch's", len(PROMPTS), 0, n_different)


def check_cached(run: Run, config: ModelConfig, limit: float, length: int = CACHED_TOKENS) -> Check:
    """Compare the logits of a text read token by token, with the cache, and read at once."""
    length = min(length, config.block_size)
    ids = np.random.default_rng(1).integers(0, config.vocab_size, (2, length))
    whole = run(decoder_feeds(ids, no_cache(config, 2)))[0]
    cache, worst = no_cache(config, 2), 0.0
    for t in progress(range(length), "cached equals uncached", unit=" tokens"):
        logits, *cache = run(decoder_feeds(ids[:, t : t + 1], cache))
        worst = max(worst, difference(whole[:, t : t + 1], logits))
    return Check("cached equals uncached", length, limit, worst)


def check_left_padding(run: Run, config: ModelConfig, limit: float) -> Check:
    """Compare rows padded on the left, and the step after them, with each row alone."""
    rng = np.random.default_rng(2)
    longest = min(40, config.block_size - 1)
    lengths = [min(n, longest) for n in (5, 17, 1, longest)]
    rows = [rng.integers(0, config.vocab_size, n) for n in lengths]
    width = max(map(len, rows))
    ids = np.stack([np.pad(row, (width - len(row), 0)) for row in rows])
    mask = np.stack([np.pad(np.ones_like(row), (width - len(row), 0)) for row in rows])
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    inputs = decoder_feeds(ids, no_cache(config, len(rows)))
    logits, *cache = run(inputs | {"attention_mask": mask, "position_ids": positions})
    following = np.full((len(rows), 1), 7)
    mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
    inputs = decoder_feeds(following, cache)
    after, *_ = run(inputs | {"attention_mask": mask, "position_ids": positions[:, -1:] + 1})
    worst = 0.0
    for i, row in enumerate(progress(rows, "left-padded rows", unit=" rows")):
        alone, *cache = run(decoder_feeds(row[None], no_cache(config)))
        worst = max(worst, difference(alone[0], logits[i, width - len(row) :]))
        alone, *_ = run(decoder_feeds(following[:1], cache))
        worst = max(worst, difference(alone[0], after[i]))
    return Check("left-padded rows equal single rows", len(rows), limit, worst)


def run_torch(model: GPT, ids: np.ndarray, cache: list[np.ndarray]) -> list[np.ndarray]:
    """Return from PyTorch what the graph returns."""
    if ids.shape[1] == 0:
        return [np.zeros(0), *cache]
    inputs = [torch.from_numpy(a) for a in decoder_feeds(ids, cache).values()]
    past = list(zip(inputs[3::2], inputs[4::2]))
    logits, caches = model(*inputs[:3], past)
    return [logits.numpy(), *(part.numpy() for cache in caches for part in cache)]
