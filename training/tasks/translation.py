"""Translation as a training task: predict the next token of the target sentence.

>>> task = TranslationTask(run, *tokenizers, training, held_out, World())  # doctest: +SKIP
>>> *inputs, targets = task.batch(0)                                 # doctest: +SKIP
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gptcore.bundle import SOURCE_TOKENIZER
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.search import translate
from training.data.pairs.batches import PairBatches
from training.data.pairs.sentences import (
    MAX_VALIDATION,
    TRAINING,
    VALIDATION,
    Fitting,
    Pair,
    write_pairs,
)
from training.evaluation.bits_per_byte import Total
from training.evaluation.validation import cost, evaluating
from training.machine.processes import World
from training.run.directory import Run


class TranslationTask:
    """Translation; implements training.loop.Task."""

    def __init__(
        self,
        run: Run,
        source_tokenizer: Tokenizer,
        tokenizer: Tokenizer,
        training: Fitting,
        validation: Fitting,
        world: World,
    ):
        self.world = world
        self.config = run.train
        self.source_tokenizer, self.tokenizer = source_tokenizer, tokenizer
        (self.training, encoded), (self.validation, held_out) = training, validation
        self.batches = PairBatches(encoded, self.config.batch_size)
        self.held_out = PairBatches(held_out, self.config.micro_batch_size)
        self.steps_per_epoch = float(self.batches.steps_per_epoch)
        self.tokens_per_step = self.batches.n_target_tokens / self.steps_per_epoch

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer")
        self.source_tokenizer.save(folder / SOURCE_TOKENIZER)
        write_pairs(self.training, folder / TRAINING)
        write_pairs(self.validation, folder / VALIDATION)

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return self.batches.batch(self.config.seed, step, self.world)

    def logits(self, model: Seq2Seq, *inputs: Tensor) -> Tensor:
        return model(*inputs)

    def evaluate(self, model: Seq2Seq) -> dict[str, float]:
        """Measure the loss with teacher forcing, and BLEU and chrF of greedy translations.

        BLEU and chrF use the first MAX_VALIDATION pairs: translations take longer than losses.
        """
        scored = self.validation[:MAX_VALIDATION]
        with evaluating(model):
            total = target_cost(model, self.held_out, self.tokenizer)
            texts = self.translate(model, scored)
        scores = score(texts, [target for _, target in scored])
        measured = {"val_loss": total.loss, "bits_per_byte": total.bits_per_byte}
        return measured | scores._asdict()

    def evaluation_seconds(self, model: Seq2Seq) -> float:
        """Return the estimated seconds of an evaluation, by the time per token of one translation.

        The untrained `model` does not end its sentences, so a whole sentence's time would mislead.
        """
        translator = TorchTranslator(model, self.source_tokenizer, self.tokenizer)
        started = time.perf_counter()
        one = translate(translator, self.validation[0][0])
        token_s = (time.perf_counter() - started) / (len(one.target_ids) - 1)
        scored = self.held_out.lengths[:MAX_VALIDATION, 0] - 1
        return token_s * int(scored.sum())

    def samples(self, model: Seq2Seq) -> list[tuple[str, str]]:
        pairs = self.validation[:5]
        with evaluating(model):
            texts = self.translate(model, pairs)
        return [(source, text) for (source, _), text in zip(pairs, texts)]

    def translate(self, model: Seq2Seq, pairs: list[Pair]) -> list[str]:
        translator = TorchTranslator(model, self.source_tokenizer, self.tokenizer)
        return [translate(translator, source).text for source, _ in pairs]


@torch.no_grad()
def target_cost(
    model: Seq2Seq, batches: Iterable[tuple[Tensor, ...]], tokenizer: Tokenizer
) -> Total:
    """Return the total loss of the targets with teacher forcing."""
    device = next(model.parameters()).device
    byte_lengths = torch.from_numpy(tokenizer.byte_lengths)
    total = Total()
    for *inputs, targets in batches:
        logits = model(*(tensor.to(device) for tensor in inputs))
        total += cost(logits.flatten(0, 1), targets.flatten(), byte_lengths)
    return total


class Score(NamedTuple):
    """sacreBLEU's BLEU and chrF, each from 0 to 100 (arXiv 1804.08771; chrF: Popovic 2015)."""

    bleu: float
    chrf: float


def score(texts: list[str], references: list[str]) -> Score:
    """Return BLEU and chrF of translations against their references."""
    from sacrebleu.metrics import BLEU, CHRF

    # Chinese and Japanese have no spaces between words, so BLEU counts characters there; "zh" keeps
    # numbers and Latin words together, and would take a run of kana for one word.
    joined = "".join(references)
    n_without_spaces = sum("\u3040" <= c <= "\u9fff" for c in joined)
    has_kana = any("\u3040" <= c <= "\u30ff" for c in joined)
    without_spaces = "char" if has_kana else "zh"
    tokenize = without_spaces if 2 * n_without_spaces > len(joined) else "13a"
    bleu = BLEU(tokenize=tokenize, effective_order=False).corpus_score(texts, [references])
    return Score(bleu.score, CHRF().corpus_score(texts, [references]).score)
