"""The inputs with which an exported graph is compared and measured: prompts, and what follows.

>>> run(decoder_feeds(ids, no_cache(config)))                          # doctest: +SKIP
"""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort

from gptcore.feeds import PAST, Arrays, cache_shapes, token_feeds


def decoder_feeds(ids: np.ndarray, cache: Sequence[np.ndarray]) -> Arrays:
    """Return all inputs of a decoder's graph, for ids (B, T) without padding after `cache`."""
    return token_feeds(ids, cache[0].shape[2]) | cache_feeds(cache)


def cache_feeds(arrays: Sequence[np.ndarray], side: str = "") -> Arrays:
    """Name cached keys and values, (B, K, P, D) each, layer after layer.

    `side` is "decoder" or "encoder" for the two caches of a translator's decoder, else empty.
    """
    middle = f"{side}." if side else ""
    return {
        f"{PAST}{i // 2}.{middle}{('key', 'value')[i % 2]}": array for i, array in enumerate(arrays)
    }


def prompt_feeds(session: ort.InferenceSession, ids: np.ndarray) -> Arrays:
    """Return the inputs that a decoder's graph takes for one row of ids (T,), without a cache."""
    taken, feeds = {i.name for i in session.get_inputs()}, token_feeds(ids[None])
    cache = {
        name: np.zeros((1, shape[1], 0, shape[3]), np.float32)
        for name, shape in cache_shapes(session).items()
    }
    return {name: feeds[name] for name in feeds if name in taken} | cache
