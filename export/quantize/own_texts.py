"""Lets a model write texts, to which its 4 bits are fitted: LLM-QAT (arXiv 2305.17888).

    >>> texts = own_texts(Path("model.onnx"), config, tokenizer, True)   # doctest: +SKIP

Where the training text is not at hand, nothing shows better than these what the model reads. Each
begins with a random token, and goes on with tokens drawn by the model's own probabilities.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from export.formats.serving import can_serve, write_serving
from gptcore.bundle import graph_bytes
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import open_inference, open_slots
from gptcore.engine.sampling import Sampling, sample_rows
from gptcore.system.cores import n_cores
from gptcore.text.chat_template import render, text_opening
from gptcore.text.tokenizer import Tokenizer
from training.machine.progress import progress

N_TOKENS = 23_000  # of all texts, about
MOST_TEXTS = 400  # of a model with a short context
MOST_FLOPS = 2.5e13  # of writing them, which takes a large model some minutes
LENGTH = 256  # most tokens of a text
TOGETHER = 32  # texts, since each step reads all weights
AS_IT_IS = Sampling(temperature=1.0, top_k=0)


def own_texts(
    graph: Path, config: ModelConfig, tokenizer: Tokenizer, is_chat: bool
) -> list[np.ndarray]:
    """Return texts, as ids (T,), by the model whose portable graph in fp32 is `graph`.

    Of a model that chats, every other one is a conversation.
    """
    config = replace(config, block_size=min(config.block_size, LENGTH))
    rng = np.random.default_rng(0)
    texts: list[np.ndarray] = []
    affordable = int(2 * MOST_FLOPS / graph_bytes(graph))  # two FLOPs a weight, which has 4 bytes
    n_tokens = min(N_TOKENS, MOST_TEXTS * config.block_size, affordable)
    bar = progress(None, "writing text to fit 4 bits to", n_tokens, " tokens")
    with bar, serving(graph, config) as inference:
        while sum(map(len, texts)) < n_tokens:
            slots = open_slots(inference, config, TOGETHER)
            openings = [opening(tokenizer, is_chat and i % 2 == 1, rng) for i in range(TOGETHER)]
            parts = [ids[: config.block_size - 1] for ids in openings]
            logits = np.concatenate([slots.read(i, ids) for i, ids in enumerate(parts)])
            while slots.lengths.max() < config.block_size:
                chosen = sample_rows(logits, AS_IT_IS, rng.random(TOGETHER), [()] * TOGETHER)
                logits = slots.step(chosen.tolist())
                bar.update(TOGETHER)
            texts += [ids[:n].astype(np.int64) for ids, n in zip(slots.ids, slots.lengths)]
    return texts


def opening(tokenizer: Tokenizer, is_chat: bool, rng: np.random.Generator) -> list[int]:
    """Return the ids of a text's beginning, or of a prompt, with a random token in it."""
    token = int(rng.choice(np.flatnonzero(tokenizer.byte_lengths)))
    if is_chat:
        message = {"role": "user", "content": tokenizer.decode([token])}
        return render([message], tokenizer, prompt=True)
    return [*text_opening(tokenizer), token]


@contextmanager
def serving(graph: Path, config: ModelConfig) -> Iterator[ort.InferenceSession]:
    """Open the serving graph of a portable one for as long as the block lasts, if it has one."""
    if not can_serve(config):
        yield open_inference(graph, threads=n_cores())
        return
    path = graph.with_name("writing.onnx")
    try:
        write_serving(graph, path, config)
        yield open_inference(path, threads=n_cores())
    finally:
        path.unlink(missing_ok=True)
