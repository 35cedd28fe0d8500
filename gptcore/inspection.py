"""What the graph onnx/inspect.onnx returns for a text: embeddings, scores, attention. No torch.

>>> ids = ids_of_text(model.bundle, "Hi")                            # doctest: +SKIP
>>> inspection = inspect_ids(Inspector(model.bundle), ids, 8)        # doctest: +SKIP
>>> inspection.tokens, inspection.attention.shape                    # doctest: +SKIP
(['<|endoftext|>', '<|user|>', 'Hi', '<|end|>', '<|assistant|>'], (4, 4, 5, 5))
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gptcore.bundle import INSPECT, UNTRAINED, Bundle, TranslationBundle
from gptcore.checks import UserError
from gptcore.engine.onnx_session import open_inference
from gptcore.engine.sampling import likelihoods
from gptcore.system.files import shown
from gptcore.system.wording import word
from gptcore.text.chat_template import (
    Message,
    always_kept,
    check_length,
    check_messages,
    cut,
    render,
    split_system,
    text_opening,
)
from gptcore.translation.search import Translation

EMPTY = "the text is empty: type a text first"
MAX_TOKENS = 128  # longest text whose attention is drawn, in tokens


class Inspector:
    """The inspection graph of a model folder, as it is trained or as it was before."""

    def __init__(self, bundle: Bundle, untrained: bool = False):
        file = UNTRAINED if untrained else INSPECT
        if file not in bundle.facts.sha256:
            folder = shown(bundle.path)  # strangers may read it, on the page
            raise UserError(f"{folder} has no {file}: python -m export inspect {word(folder)}")
        self.bundle = bundle
        self.inference = open_inference(bundle.path / file, "cpu", threads=1)

    def run(self, **ids: list[int]) -> dict[str, np.ndarray]:
        """Run the graph on lists of ids and return its outputs by name, without the batch axis."""
        feeds = {name: np.array([values], np.int64) for name, values in ids.items()}
        names = [output.name for output in self.inference.get_outputs()]
        return {name: a[0] for name, a in zip(names, self.inference.run(names, feeds))}


@dataclass(frozen=True)
class Inspection:
    """The intermediate results of a decoder for a text of T tokens: L layers, H heads."""

    tokens: list[str]
    token_ids: list[int]
    following: list[list[tuple[int, str, float]]]  # after each token: id, name, log probability
    # The graph's outputs, by its names for them.
    embeddings: np.ndarray  # (T, C)
    positions: np.ndarray  # (T, width of the position table)
    scores: np.ndarray  # (L, H, T, T), before the causal mask
    attention: np.ndarray  # (L, H, T, T), rows sum to 1
    queries: np.ndarray  # (L, H, T, D)
    keys: np.ndarray  # (L, K, T, D)
    values: np.ndarray  # (L, K, T, D)
    normed: np.ndarray  # (L, 2, T, C), the outputs of the two norms


def inspect_ids(inspector: Inspector, ids: list[int], n_next: int) -> Inspection:
    """Run the model on ids and return what it computes.

    `following` has the `n_next` likeliest tokens after each. Raises UserError if there are no ids,
    or too many to be drawn.
    """
    tokenizer, limit = inspector.bundle.tokenizer, most_tokens(inspector.bundle)
    check_count(ids, limit)
    seen = inspector.run(input_ids=ids)
    following = likelihoods([0] * len(ids), seen.pop("logits").astype(np.float64), n_next)
    return Inspection(
        tokens=[tokenizer.name(i) for i in ids],
        token_ids=ids,
        following=[[(i, tokenizer.name(i), p) for i, p in one.top] for one in following],
        **seen,
    )


def most_tokens(bundle: Bundle) -> int:
    return min(MAX_TOKENS, bundle.config.block_size)


def ids_of_text(bundle: Bundle, text: str) -> list[int]:
    """Return a text's ids as the model reads it: a chat model reads it as a user's message.

    Raises UserError if it is empty or too long.
    """
    if not text.strip():
        raise UserError(EMPTY)
    if bundle.is_chat:
        return ids_of_messages(bundle, [{"role": "user", "content": text}]).ids
    tokenizer = bundle.tokenizer
    check_length(text, tokenizer, most_tokens(bundle), "text")
    return [*text_opening(tokenizer), *tokenizer.encode(text)]


class Excerpt(NamedTuple):
    """The part of a text or a conversation that is read."""

    ids: list[int]
    n_dropped: int = 0  # oldest messages that are left out
    n_cut: int = 0  # last tokens that are left out


def ids_of_messages(bundle: Bundle, messages: list[Message]) -> Excerpt:
    """Return the part of a conversation that is read.

    As in a prompt, the system message is kept, and a conversation is cut before a user's message,
    or else before the last one. If the last reply is too long, its beginning is read, after
    the message that it answers. Raises UserError if a message is invalid, or what is kept too long.
    """
    limit, tokenizer = most_tokens(bundle), bundle.tokenizer
    check_messages(messages)
    for message in always_kept(messages):
        check_length(message["content"], tokenizer, bundle.config.block_size, "text")
    is_prompt = messages[-1]["role"] != "assistant"
    ids, n_dropped = cut(messages, tokenizer, limit, prompt=is_prompt)
    if len(ids) > limit and not is_prompt:
        system, turns = split_system(messages)
        asked = [m for m in turns[-2:-1] if m["role"] == "user"]
        check_count(render(system + asked, tokenizer, prompt=True), limit)
        ids = render(system + asked + turns[-1:], tokenizer)
        return Excerpt(ids[:limit], len(turns) - len(asked) - 1, max(0, len(ids) - limit))
    check_count(ids, limit)
    return Excerpt(ids, n_dropped)


def check_count(ids: list[int], limit: int) -> None:
    if not ids:
        raise UserError(EMPTY)
    if len(ids) > limit:
        raise UserError(f"the text has {len(ids)} tokens and the picture holds {limit}: shorten it")


@dataclass(frozen=True)
class CrossAttention:
    """Attention of each target token to the S source tokens, in L layers of H heads; and the two
    self-attentions."""

    source: list[str]
    target: list[str]
    attention: np.ndarray  # (L, H, T, S)
    encoder: np.ndarray  # (layers of the encoder, H, S, S)
    decoder: np.ndarray  # (L, H, T, T), of the tokens before those of `target`


def inspect_translation(inspector: Inspector, translation: Translation) -> CrossAttention:
    """Return the cross-attention of a finished translation."""
    bundle = inspector.bundle
    assert isinstance(bundle, TranslationBundle)
    source, target = translation.source_ids, translation.target_ids
    seen = inspector.run(input_ids=source, decoder_input_ids=target[:-1])
    return CrossAttention(
        [bundle.source_tokenizer.name(i) for i in source],
        # Row t of the attention produced token t + 1.
        [bundle.tokenizer.name(i) for i in target[1:]],
        seen["cross_attention"],
        seen["encoder_attention"],
        seen["decoder_attention"],
    )
