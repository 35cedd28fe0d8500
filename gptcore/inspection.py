"""What the graph onnx/inspect.onnx returns for a text: embeddings, scores, attention. No torch.

>>> inspection = inspect_text(Inspector(model.bundle), "Hi")         # doctest: +SKIP
>>> inspection.tokens, inspection.attention.shape                    # doctest: +SKIP
(['<|endoftext|>', '<|user|>', 'Hi', '<|end|>', '<|assistant|>'], (4, 4, 5, 5))
"""

from dataclasses import dataclass

import numpy as np

from gptcore.bundle import Bundle, TranslationBundle
from gptcore.checks import UserError
from gptcore.engine.onnx_session import open_inference
from gptcore.text.chat_template import check_length, render, text_opening
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.search import Translation

MAX_TOKENS = 64  # longest text whose attention is drawn, in tokens


class Inspector:
    """The inspection graph of a model folder, loaded when it is first used."""

    def __init__(self, bundle: Bundle):
        if bundle.inspect is None:
            raise UserError(
                f"{bundle.path} has no onnx/inspect.onnx: python -m export inspect {bundle.path}"
            )
        self.bundle = bundle
        self.inference = open_inference(bundle.inspect, "cpu", threads=1)

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
    embeddings: np.ndarray  # (T, C)
    positions: np.ndarray  # (T, width of the position table)
    scores: np.ndarray  # (L, H, T, T), before the causal mask
    attention: np.ndarray  # (L, H, T, T), rows sum to 1
    next_tokens: list[tuple[str, float]]  # the likeliest next tokens with their probabilities


def inspect_text(inspector: Inspector, text: str, n_next: int = 10) -> Inspection:
    """Run the model on a text and return what it computes; a chat model reads a user's message.

    Raises UserError if the text is empty or too long to be drawn.
    """
    if not text.strip():
        raise UserError("the text is empty: type a text first")
    bundle, tokenizer = inspector.bundle, inspector.bundle.tokenizer
    limit = min(MAX_TOKENS, bundle.config.block_size)
    check_length(text, tokenizer, limit, "text")
    if bundle.is_chat:
        ids = render([{"role": "user", "content": text}], tokenizer, prompt=True)
    else:
        ids = [*text_opening(tokenizer), *tokenizer.encode(text)]
    if len(ids) > limit:
        raise UserError(f"the text has {len(ids)} tokens and the picture holds {limit}: shorten it")
    seen = inspector.run(input_ids=ids)
    logits = seen["logits"][-1].astype(np.float64)
    weights = np.exp(logits - logits.max())
    likeliest = np.argsort(-weights, kind="stable")[:n_next]
    return Inspection(
        tokens=token_names(ids, tokenizer),
        token_ids=ids,
        embeddings=seen["embeddings"],
        positions=seen["positions"],
        scores=seen["scores"],
        attention=seen["attention"],
        next_tokens=[
            (name, float(weights[i] / weights.sum()))
            for i, name in zip(likeliest, token_names(likeliest, tokenizer))
        ],
    )


@dataclass(frozen=True)
class CrossAttention:
    """Attention of each target token to the S source tokens, in L layers of H heads."""

    source: list[str]
    target: list[str]
    attention: np.ndarray  # (L, H, T, S)


def inspect_translation(inspector: Inspector, translation: Translation) -> CrossAttention:
    """Return the cross-attention of a finished translation."""
    bundle = inspector.bundle
    assert isinstance(bundle, TranslationBundle)
    source, target = translation.source_ids, translation.target_ids
    seen = inspector.run(input_ids=source, decoder_input_ids=target[:-1])
    return CrossAttention(
        token_names(source, bundle.source_tokenizer),
        token_names(target[1:], bundle.tokenizer),  # row t of the attention produced token t + 1
        seen["cross_attention"],
    )


def token_names(ids: list[int] | np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """Return a readable name for each id; incomplete characters are shown as bytes."""
    special = {token_id: name for name, token_id in tokenizer.special.items()}
    return [special.get(int(i)) or readable(tokenizer.token_bytes(int(i))) for i in ids]


def readable(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
