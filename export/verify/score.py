"""Translates a file of pairs in ONNX Runtime and in PyTorch; compares and scores the results.

>>> pairs = read_pairs(path, training.data.reverse)                  # doctest: +SKIP
>>> score_folder(bundle, pairs, beams=4, samples=10, untrained=False)  # doctest: +SKIP
"""

import time
from typing import NamedTuple

import torch

from export.verify.translation import load_reference
from gptcore.bundle import TranslationBundle
from gptcore.checks import UserError
from gptcore.nn import build_model
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.system.wording import counted
from gptcore.translation.onnx import open_translator
from gptcore.translation.search import Model, Translation, check_beams, encode_source, translate
from training.data.pairs.sentences import Pair
from training.machine.progress import progress
from training.tasks.translation import Score, score


class Result(NamedTuple):
    """A model's translations of the sources of some pairs, and their score."""

    translations: list[Translation]
    score: Score
    seconds: float


def score_folder(
    bundle: TranslationBundle, pairs: list[Pair], beams: int, samples: int, untrained: bool
) -> int:
    """Translate all sources in both runtimes, print scores and samples.

    Returns the number of sentences whose tokens differ. Raises UserError if no source fits.
    `untrained` adds a randomly initialised model of the same shape, for comparison.
    """
    check_beams(beams)
    tokenizers = bundle.source_tokenizer, bundle.tokenizer
    block_size = bundle.config.block_size
    fitting = [pair for pair in pairs if len(encode_source(pair[0], tokenizers[0])) <= block_size]
    if len(fitting) < len(pairs):
        n_left_out = len(pairs) - len(fitting)
        print(f"left out {counted(n_left_out, 'source')} of more than {block_size} tokens")
    if not fitting:
        raise UserError("every source is longer than the model's context: give shorter sentences")
    ours = translate_all("ONNX Runtime", open_translator(bundle), fitting, beams)
    reference = TorchTranslator(load_reference(bundle), *tokenizers)
    theirs = translate_all("PyTorch", reference, fitting, beams)
    if untrained:
        torch.manual_seed(0)
        fresh = TorchTranslator(build_model(bundle.config), *tokenizers)
        translate_all("untrained", fresh, fitting, beams=1)
    n_different = sum(
        a.target_ids != b.target_ids for a, b in zip(ours.translations, theirs.translations)
    )
    print(f"token for token, ONNX Runtime and PyTorch differ in {counted(n_different, 'sentence')}")
    step = max(1, len(fitting) // max(samples, 1))
    both = list(zip(fitting, ours.translations))
    for (source, target), translation in both[::step][:samples]:
        print(f"  {source} -> {translation.text}   ({target})")
    return n_different


def translate_all(name: str, model: Model, pairs: list[Pair], beams: int) -> Result:
    """Translate and score all pairs, and print one line."""
    started = time.perf_counter()
    bar = progress(pairs, name, unit=" sentences", leave=False)
    translations = [translate(model, source, beams) for source, _ in bar]
    seconds = time.perf_counter() - started
    texts = [translation.text for translation in translations]
    result = Result(translations, score(texts, [target for _, target in pairs]), seconds)
    print(
        f"{name:13} BLEU {result.score.bleu:6.2f}  chrF {result.score.chrf:6.2f}  "
        f"{counted(len(pairs), 'sentence')} in {seconds:.1f} s",
        flush=True,
    )
    return result
