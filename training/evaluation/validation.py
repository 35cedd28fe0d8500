"""Validation during training: bits per byte of the held-out split, and samples.

>>> evaluate(model, rows, batch_size=32).bits_per_byte               # doctest: +SKIP
0.52
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.engine.generate import Reply, Request, generate
from gptcore.engine.sampling import Sampling
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.torch_session import TorchSession
from gptcore.text.chat_format import Ends
from gptcore.text.tokenizer import Tokenizer
from training.data.rows import IGNORED, Rows
from training.evaluation.bits_per_byte import Total
from training.machine.processes import World
from training.step import learned_rows, only_rows

SHORT = 60  # characters of a question that fits a button


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Enter a context in which the model is in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def evaluate(
    model: GPT,
    rows: Rows,
    batch_size: int,
    which: Sequence[int] | None = None,
    world: World = World(),
) -> Total:
    """Measure the rows `which` (None: all); each process measures a part of each batch.

    Each token counts once; in conversations only the assistant's tokens count.
    """
    device = next(model.parameters()).device
    byte_lengths = torch.from_numpy(rows.tokenizer.byte_lengths)
    total = Total()
    which = range(len(rows)) if which is None else which
    with evaluating(model):
        for first in range(0, len(which), batch_size):
            part = world.part(which[first : first + batch_size])
            x, y = rows.batch(part, fresh_only=True)
            counted = learned_rows(y)
            with only_rows(model, counted.to(device)):
                logits, _ = model(**whole_sequence(x.to(device)))
            total += cost(logits, y.flatten()[counted], byte_lengths)
    nats, n_tokens, n_bytes = world.sum(total.nats, total.n_tokens, total.n_bytes)
    return Total(n_tokens=int(n_tokens), n_bytes=int(n_bytes), nats=nats)


def cost(logits: Tensor, targets: Tensor, byte_lengths: Tensor) -> Total:
    """Return a batch's total, given logits (N, V), targets (N,) and bytes per token (V,)."""
    y = targets.to(logits.device)  # a batch's logits may be a gigabyte
    nats = F.cross_entropy(logits.float(), y, ignore_index=IGNORED, reduction="sum")
    counted = targets[targets != IGNORED]
    n_bytes = int(byte_lengths[counted].sum())
    return Total(n_tokens=len(counted), n_bytes=n_bytes, nats=nats.item())


class Prompt(NamedTuple):
    """The beginning of a document."""

    ids: list[int]
    asks: bool  # whether a reply follows; otherwise the text goes on


def sample_prompts(rows: Rows, n: int = 3) -> list[Prompt]:
    """Return the beginnings of n documents: up to the first reply, or eight tokens."""
    packing = rows.packing(0)
    prompts = []
    bounds = [*packing.starts[: n + 1].tolist(), len(rows.split[0])]
    for start, end in pairwise(bounds[: n + 1]):
        ids, mask = rows.read(packing, start, start)
        length = min(end - start, rows.block_size // 2)
        learned = np.flatnonzero(mask[1:length]) + 1
        asks = bool(len(learned) and learned[0] > 1)
        prompts.append(Prompt(ids[: min(length, learned[0] if asks else 8)].tolist(), asks))
    return prompts


def questions(rows: Rows, n: int = 4) -> tuple[str, ...]:
    """Return short first questions of conversations, for a person to try."""
    asked = [question(p, rows.tokenizer) for p in sample_prompts(rows, 4 * n) if p.asks]
    short = [text for text in asked if text and len(text) <= SHORT and "\n" not in text]
    return tuple(dict.fromkeys(short))[:n]


def question(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Return the words of the user in the beginning of a conversation; "" if there are none."""
    return first_between(tokenizer.chat.user, tokenizer.show(prompt.ids))


def first_between(ends: Ends, text: str) -> str:
    before, after = ends
    return text.partition(before)[2].partition(after)[0] if before else ""


def readable(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Return a prompt as a person reads it; of a conversation, what the user says.

    Before it stands the system message, if it is not the one that the model's chats usually have.
    """
    if not (asked := prompt.asks and question(prompt, tokenizer)):
        return tokenizer.decode(prompt.ids)
    system = first_between(tokenizer.chat.system, tokenizer.show(prompt.ids))
    return asked if system in ("", tokenizer.chat.usual_system) else f"(system: {system}) {asked}"


def write_samples(model: GPT, rows: Rows) -> list[tuple[str, str]]:
    """Return (prompt, continuation) texts for samples.md, always sampled with the same seed.

    A plain text continues beyond a short context, as in `gptcore.engine.generate.complete`.
    """
    sampling = Sampling(temperature=0.7, seed=1)
    samples = []
    for prompt in sample_prompts(rows):
        with evaluating(model):
            request = Request(prompt.ids, sampling, max_tokens=60, slide=not prompt.asks)
            reply = Reply(request, rows.tokenizer, rows.block_size)
            text = "".join(piece.text for piece in generate(TorchSession(model), reply))
        samples.append((readable(prompt, rows.tokenizer), text))
    return samples
