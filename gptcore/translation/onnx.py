"""Translation over ONNX Runtime, used by the page and by embedding programs. No torch.

>>> model = load_translator("models/zh-en")                          # doctest: +SKIP
>>> translate(model, "我想喝水。", beams=4).text                      # doctest: +SKIP
'I want to drink water.'
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from gptcore.bundle import DECODER, ENCODER, ONNX, TranslationBundle, load_translation_bundle
from gptcore.checks import UserError
from gptcore.engine.onnx_session import check_provider, choose_device, open_inference
from gptcore.feeds import PAST, PRESENT, cache_shapes, no_cache, token_feeds
from gptcore.system.cores import fastest, median_seconds, n_cores, thread_counts


class OnnxTranslator:
    """A loaded folder of a translation model. It is safe to use from several threads."""

    def __init__(
        self,
        bundle: TranslationBundle,
        encoder: ort.InferenceSession,
        decoder: ort.InferenceSession,
        threads: int,
    ):
        self.bundle, self.config = bundle, bundle.config
        self.source_tokenizer, self.tokenizer = bundle.source_tokenizer, bundle.tokenizer
        self.encoder, self.decoder = encoder, decoder
        self.threads, self.file_name = threads, DECODER
        self.provider = decoder.get_providers()[0]
        # The decoder reads the source's keys and values as the encoder returns them.
        self.memory_names = [o.name.replace(PRESENT, PAST) for o in encoder.get_outputs()]
        self.cache_names = [n for n in cache_shapes(decoder) if n not in self.memory_names]
        if not self.memory_names or not {*self.memory_names} <= cache_shapes(decoder).keys():
            raise UserError(
                f"{bundle.path}: encoder and decoder are of different exports, export the model "
                f"again"
            )

    def session(self) -> "OnnxTranslatorSession":
        return OnnxTranslatorSession(self)


class OnnxTranslatorSession:
    """One translation: keys and values of the source, and the cache of each hypothesis."""

    def __init__(self, model: OnnxTranslator):
        self.model = model

    def begin(self, source_ids: list[int]) -> None:
        ids = np.array([source_ids], np.int64)
        mask = np.ones_like(ids)
        memory = self.model.encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        self.source = dict(zip(self.model.memory_names, memory)) | {"encoder_attention_mask": mask}
        self.repeated = self.source  # for as many hypotheses as the last step had
        self.cache = no_cache(self.model.config)

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        n, past = len(tokens), self.cache[0].shape[2]
        feeds = token_feeds(np.array(tokens, np.int64)[:, None], past)
        feeds |= {name: cache[parents] for name, cache in zip(self.model.cache_names, self.cache)}
        if n != len(self.repeated["encoder_attention_mask"]):
            self.repeated = {name: array.repeat(n, axis=0) for name, array in self.source.items()}
        logits, *self.cache = self.model.decoder.run(None, feeds | self.repeated)
        return logits[:, -1]


def load_translator(
    folder: str | Path, threads: int | None = None, device: str | None = None
) -> OnnxTranslator:
    """Load the folder of a translation model; `device` is "cpu" or "cuda".

    Arguments that are None are chosen: the faster of CUDA, if there is a GPU, and the CPU with one
    thread or all cores. Raises UserError if folder or device cannot be used.
    """
    choose_device(device)  # a wrong one is told before the files are read
    model = open_translator(load_translation_bundle(folder), threads, device)
    check_provider(device, model.provider)
    return model


def open_translator(
    bundle: TranslationBundle, threads: int | None = None, device: str | None = None
) -> OnnxTranslator:
    """Load the translator of a bundle, with the arguments of load_translator; raises UserError."""
    chosen = choose_device(device)
    devices = [chosen] if device else [*dict.fromkeys((chosen, "cpu"))]
    if threads is None or len(devices) > 1:
        counts = {"cpu": thread_counts(), "cuda": [n_cores()]}
        ways = [(n, d) for d in devices for n in ([threads] if threads else counts[d])]
        best = fastest(ways, lambda way: step_seconds(open_translator(bundle, *way)))
        return open_translator(bundle, *best)
    folder = (bundle.path / ONNX).parent
    encoder, decoder = (
        open_inference(folder / name, chosen, threads) for name in (ENCODER, DECODER)
    )
    return OnnxTranslator(bundle, encoder, decoder, threads)


def step_seconds(model: OnnxTranslator) -> float:
    """Return the median time of a one-hypothesis step after a short source, in seconds."""
    session, block_size = OnnxTranslatorSession(model), model.config.block_size
    session.begin([0] * min(32, block_size))
    return median_seconds(lambda: session.step([0], [0]), block_size)
