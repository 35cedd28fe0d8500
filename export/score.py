"""Translations of whole files, in PyTorch and in ONNX Runtime: equal, and how good?

>>> results = score_folder(bundle, read_pairs(path), beams=4)        # doctest: +SKIP
"""

import time
from typing import NamedTuple

from tqdm import tqdm

from export.verify_translation import load_reference
from gptcore.bundle import TranslationBundle
from gptcore.nn import build_model
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.onnx_translator import open_translator
from gptcore.translate import Model, Translation, check_beams, translate
from training.pairs import Pair, encode_pairs
from training.translation import Score, score


class Result(NamedTuple):
    """What a model made of a file of pairs."""

    translations: list[Translation]
    score: Score
    seconds: float


def score_folder(
    bundle: TranslationBundle, pairs: list[Pair], beams: int
) -> tuple[Result, Result, Result]:
    """Translate all sources with ONNX Runtime, with PyTorch, and, for comparison, greedily with
    an untrained model of the same shape."""
    check_beams(beams)
    tokenizers = bundle.source_tokenizer, bundle.tokenizer
    pairs, _ = encode_pairs(pairs, *tokenizers, bundle.config.block_size)  # those that fit
    reference = TorchTranslator(load_reference(bundle), *tokenizers)
    untrained = TorchTranslator(build_model(bundle.config), *tokenizers)
    return (
        translate_all(open_translator(bundle), pairs, beams),
        translate_all(reference, pairs, beams),
        translate_all(untrained, pairs[:50], beams=1),
    )


def translate_all(model: Model, pairs: list[Pair], beams: int) -> Result:
    started = time.perf_counter()
    bar = tqdm(pairs, leave=False, disable=None)  # no bar in a log file
    translations = [translate(model, source, beams) for source, _ in bar]
    seconds = time.perf_counter() - started
    texts = [translation.text for translation in translations]
    return Result(translations, score(texts, [target for _, target in pairs]), seconds)


def print_scores(results: tuple[Result, Result, Result], pairs: list[Pair], samples: int) -> int:
    """Print the comparison; the number of sentences whose tokens differ."""
    ours, reference, _ = results
    n_different = sum(
        a.target_ids != b.target_ids for a, b in zip(ours.translations, reference.translations)
    )
    for name, result in zip(("ONNX Runtime", "PyTorch", "untrained"), results):
        n = len(result.translations)
        print(
            f"{name:13} BLEU {result.score.bleu:6.2f}  chrF {result.score.chrf:6.2f}  "
            f"{n} sentences in {result.seconds:.1f} s"
        )
    print(f"token for token, ONNX Runtime and PyTorch differ in {n_different} sentences")
    step = max(1, len(pairs) // max(samples, 1))
    for (source, target), translation in list(zip(pairs, ours.translations))[::step][:samples]:
        print(f"  {source} -> {translation.text}   ({target})")
    return n_different
