"""What the view's Inspect asks: how a decoder reads a text, one layer at a time.

    {"tokens": [[2, "<|user|>", true], ...], "following": [[[48, "Hi", -0.1], ...], ...],
     "n_dropped": 0, "n_cut": 0, "arrays": {"attention": {"shape": [9, 5, 5], "data": "..."}, ...}}

A token is its id, its text, and whether it is a special one. `following` has the likeliest tokens
after each, with log probabilities; the data of an array is its float32 numbers in base64. Shape
letters: H heads, K of keys and values, T tokens, D channels of a head, C of all.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gptcore.bundle import Bundle
from gptcore.checks import UserError, brief
from gptcore.engine.inputs import to_messages, whole_number
from gptcore.inspection import (
    Excerpt,
    Inspector,
    check_count,
    ids_of_messages,
    ids_of_text,
    inspect_ids,
    most_tokens,
)
from gptcore.model import OnnxModel
from gptcore.models import Models
from gptcore.page.reply import as_json
from gptcore.system.threads import finished

N_NEXT = 8


def inspect_endpoint(models: Models) -> Callable:
    """Return the function that answers; its graphs are opened when needed. It raises UserError."""
    inspectors: WeakKeyDictionary[OnnxModel, Inspector] = WeakKeyDictionary()  # of open models
    opening = Lock()  # several would open a graph several times at once

    def inspector(model: OnnxModel) -> Inspector:
        with opening:
            if model not in inspectors:
                inspectors[model] = Inspector(model.bundle)
            return inspectors[model]

    def look(model: OnnxModel, what: Any, layer: Any, untrained: bool) -> str:
        bundle = model.bundle
        read = read_ids(bundle, what)
        at = whole_number("layer", layer)
        if not (0 <= at < bundle.config.n_layer):
            n_layer = bundle.config.n_layer
            raise UserError(f"layer={brief(at)} is out of range: the model has {n_layer}")
        check_count(read.ids, most_tokens(bundle))  # before a graph is opened
        # The untrained graph draws other weights at each run, but the same in its first.
        opened = Inspector(bundle, untrained=True) if untrained else inspector(model)
        seen = inspect_ids(opened, read.ids, N_NEXT)
        special = bundle.tokenizer.special_names
        return as_json(
            tokens=[(i, name, i in special) for i, name in zip(seen.token_ids, seen.tokens)],
            following=[[(i, name, round(p, 3)) for i, name, p in top] for top in seen.following],
            n_dropped=read.n_dropped,
            n_cut=read.n_cut,
            arrays={
                "attention": packed(seen.attention[at]),  # (H, T, T)
                "scores": packed(seen.scores[at]),  # (H, T, T)
                "embeddings": packed(seen.embeddings),  # (T, C)
                "positions": packed(seen.positions),  # (T, width of the table)
                "queries": packed(seen.queries[at]),  # (H, T, D)
                "keys": packed(seen.keys[at]),  # (K, T, D)
                "values": packed(seen.values[at]),  # (K, T, D)
                "normed": packed(seen.normed[at]),  # (2, T, C), of the two norms
            },
        )

    async def inspect(
        what: list[Any] | str, layer: int, name: str | None, untrained: bool
    ) -> AsyncIterator[str]:
        model = await models.get(models.check(name))
        yield await finished(lambda: look(model, what, layer, untrained))

    return inspect


def read_ids(bundle: Bundle, what: Any) -> Excerpt:
    """Return what is read of a text, of messages, or of ids."""
    if isinstance(what, str):
        return Excerpt(ids_of_text(bundle, what))
    if isinstance(what, list) and what and isinstance(what[0], dict):
        return ids_of_messages(bundle, to_messages(what))
    if isinstance(what, list) and all(map(bundle.tokenizer.is_id, what)):
        return Excerpt(what)
    raise UserError("what is looked at must be a text, messages, or ids of this model's tokens")


def packed(array: np.ndarray) -> dict[str, Any]:
    data = np.ascontiguousarray(array, "<f4")
    return {"shape": data.shape, "data": b64encode(data.tobytes()).decode()}
