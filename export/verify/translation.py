"""Compares the two ONNX graphs of a translation model with PyTorch; one Check per claim.

>>> print_report(verify_translation(load_translation_bundle("models/zh-en")))  # doctest: +SKIP
"""

from itertools import product

import numpy as np
import onnxruntime as ort
import torch

from export.formats.feeds import cache_feeds
from export.formats.weights import Weights
from export.verify.decoder import BATCHES, LENGTHS, PASTS, every_id
from export.verify.report import LOGITS, TOLERANCE, difference
from gptcore.bundle import TranslationBundle
from gptcore.checks import UserError
from gptcore.facts import Check
from gptcore.feeds import no_cache, token_feeds
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.translation.onnx import OnnxTranslator, open_translator
from gptcore.translation.search import Model, beam_search, target_ends
from training.machine.progress import waiting

SOURCES = (1, 5, 33)  # lengths of the sources, in tokens
N_SENTENCES = 20  # number of sentences of random ids that both translate
BEAMS = (1, 4)
Arrays = list[np.ndarray]


@waiting("comparing the graphs with PyTorch")
def verify_translation(bundle: TranslationBundle) -> list[Check]:
    """Compare both graphs with PyTorch on model.safetensors; one Check per claim."""
    model = load_reference(bundle)
    onnx_model = open_translator(bundle, threads=1, device="cpu")
    return [
        check_encoder(model, onnx_model.encoder),
        *check_decoder(model, onnx_model.decoder),
        check_cached(model, onnx_model.decoder),
        check_padding(model, onnx_model),
        *(check_search(model, onnx_model, beams) for beams in BEAMS),
    ]


def load_reference(bundle: TranslationBundle) -> Seq2Seq:
    """Return the PyTorch model with the weights of the folder."""
    model = build_model(bundle.config)
    load_weights(model, dict(Weights(bundle.path)), bundle.path)
    return model.eval()


@torch.inference_mode()
def check_encoder(model: Seq2Seq, encoder: ort.InferenceSession) -> Check:
    """Compare keys and values of sources of several lengths, with the last row padded.

    Then compare those of every source token and every position.
    """
    config, worst, n_cases = model.config, 0.0, 0
    rng = np.random.default_rng(0)
    shapes = [s for s in product(BATCHES, SOURCES) if s[1] <= config.block_size]
    sources = [rng.integers(0, config.source_vocab_size, shape) for shape in shapes]
    rows, _ = every_id(config.source_vocab_size, config.block_size, row=config.block_size)
    sources += list(rows[:, None])
    for ids in sources:
        mask = np.ones_like(ids)
        mask[-1, 1 + ids.shape[1] // 2 :] = 0
        expected = flat(model.encode(torch.from_numpy(ids), torch.from_numpy(mask)))
        got = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        worst = max(worst, *(difference(a, b) for a, b in zip(expected, got, strict=True)))
        n_cases += 1
    return Check("encoder equals PyTorch's, batch x source", n_cases, TOLERANCE, worst)


@torch.inference_mode()
def check_decoder(model: Seq2Seq, decoder: ort.InferenceSession) -> list[Check]:
    """Compare logits and cache for each combination of batch, sequence, past and source."""
    rng, n_cases = np.random.default_rng(1), 0
    logits_worst = cache_worst = 0.0
    for batch, length, past, source in product(BATCHES, LENGTHS, PASTS, SOURCES):
        if max(past + length, source) > model.config.block_size:
            continue
        ids = rng.integers(0, model.config.vocab_size, (batch, past + length))
        memory = random_memory(model, rng, batch, source)
        cache = run_torch(model, ids[:, :past], no_cache(model.config, batch), memory)[1:]
        expected = run_torch(model, ids[:, past:], cache, memory)
        got = run_onnx(decoder, ids[:, past:], cache, memory)
        logits_worst = max(logits_worst, difference(expected[0], got[0]))
        cache_worst = max(
            cache_worst, *(difference(a, b) for a, b in zip(expected[1:], got[1:], strict=True))
        )
        n_cases += 1
    axes = "batch x sequence x past x source"
    return [
        Check(f"{LOGITS}, {axes}", n_cases, TOLERANCE, logits_worst),
        Check(f"cache equals PyTorch's, {axes}", n_cases, TOLERANCE, cache_worst),
    ]


def check_cached(model: Seq2Seq, decoder: ort.InferenceSession) -> Check:
    """Compare the logits of a target read token by token, with the cache, and read at once."""
    rng, length = np.random.default_rng(2), min(48, model.config.block_size)
    ids = rng.integers(0, model.config.vocab_size, (2, length))
    memory = random_memory(model, rng, 2, min(9, length))
    whole = run_onnx(decoder, ids, no_cache(model.config, 2), memory)[0]
    cache, worst = no_cache(model.config, 2), 0.0
    for t in range(length):
        logits, *cache = run_onnx(decoder, ids[:, t : t + 1], cache, memory)
        worst = max(worst, difference(whole[:, t : t + 1], logits))
    return Check("cached equals uncached", length, TOLERANCE, worst)


def check_padding(model: Seq2Seq, onnx_model: OnnxTranslator) -> Check:
    """Compare logits for sources padded on the right with those for each source alone."""
    rng, longest = np.random.default_rng(3), min(20, model.config.block_size)
    lengths = [min(n, longest) for n in (7, 1, longest)]
    rows = [rng.integers(0, model.config.source_vocab_size, n) for n in lengths]
    ids = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    mask = np.stack([np.arange(longest) < len(row) for row in rows]).astype(np.int64)
    targets = rng.integers(0, model.config.vocab_size, (len(rows), min(6, longest)))

    def decode(ids: np.ndarray, mask: np.ndarray, targets: np.ndarray) -> np.ndarray:
        memory = onnx_model.encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        feeds = translator_feeds(targets, no_cache(model.config, len(targets)), memory)
        return onnx_model.decoder.run(None, feeds | {"encoder_attention_mask": mask})[0]

    together, worst = decode(ids, mask, targets), 0.0
    for i, row in enumerate(rows):
        alone = decode(row[None], np.ones((1, len(row)), np.int64), targets[i : i + 1])
        worst = max(worst, difference(together[i : i + 1], alone))
    return Check("padded sources equal single ones", len(rows), TOLERANCE, worst)


def check_search(model: Seq2Seq, onnx_model: OnnxTranslator, beams: int) -> Check:
    """Compare both sessions' translations of random sources, token for token."""
    reference = TorchTranslator(model, onnx_model.source_tokenizer, onnx_model.tokenizer)
    rng, n_different = np.random.default_rng(4), 0
    for _ in range(N_SENTENCES):
        length = int(rng.integers(1, min(20, model.config.block_size)))
        source = [int(i) for i in rng.integers(0, model.config.source_vocab_size, length)]
        try:
            n_different += search(reference, source, beams) != search(onnx_model, source, beams)
        except UserError:  # raised for an output that is not finite
            n_different += 1
    return Check(f"tokens equal PyTorch's, {beams} beams", N_SENTENCES, 0, n_different)


def search(model: Model, source: list[int], beams: int) -> list[int]:
    limit = min(40, model.config.block_size)
    session = model.session()
    session.begin(source)
    return beam_search(session, *target_ends(model.tokenizer), beams, limit)


def random_memory(model: Seq2Seq, rng: np.random.Generator, batch: int, length: int) -> Arrays:
    ids = torch.from_numpy(rng.integers(0, model.config.source_vocab_size, (batch, length)))
    with torch.inference_mode():
        return flat(model.encode(ids, torch.ones_like(ids)))


def translator_feeds(ids: np.ndarray, cache: Arrays, memory: Arrays) -> dict[str, np.ndarray]:
    """Return the decoder's inputs for ids (B, T) without padding, after `cache`."""
    source_mask = np.ones((len(ids), memory[0].shape[2]), np.int64)
    return (
        token_feeds(ids, cache[0].shape[2])
        | {"encoder_attention_mask": source_mask}
        | cache_feeds(cache, "decoder")
        | cache_feeds(memory, "encoder")
    )


def run_onnx(
    decoder: ort.InferenceSession, ids: np.ndarray, cache: Arrays, memory: Arrays
) -> Arrays:
    return decoder.run(None, translator_feeds(ids, cache, memory))


def run_torch(model: Seq2Seq, ids: np.ndarray, cache: Arrays, memory: Arrays) -> Arrays:
    """Return from PyTorch what the decoder's graph returns."""
    if ids.shape[1] == 0:
        return [np.zeros(0), *cache]
    feeds = translator_feeds(ids, cache, memory)
    tokens, mask, positions, source_mask, *cached = map(torch.from_numpy, feeds.values())
    n = len(cache)
    past, keys_values = paired(cached[:n]), paired(cached[n:])
    with torch.inference_mode():
        logits, caches = model.decode(tokens, mask, positions, source_mask, past, keys_values)
    return [logits.numpy(), *flat(caches)]


def paired(tensors: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(tensors[::2], tensors[1::2]))


def flat(caches: list[tuple[torch.Tensor, torch.Tensor]]) -> Arrays:
    return [part.numpy() for cache in caches for part in cache]
