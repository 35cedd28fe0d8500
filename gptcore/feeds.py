"""The inputs of an exported graph, under the names that gptcore's graphs use.

>>> token_feeds(np.array([[5, 8, 13]]), past=2)["position_ids"]
array([[2, 3, 4]])
"""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort

from gptcore.config import ModelConfig

Arrays = dict[str, np.ndarray]


def token_feeds(ids: np.ndarray, past: int = 0) -> Arrays:
    """Return the inputs except the cache, for ids (B, T) without padding after `past` cached
    positions."""
    batch, length = ids.shape
    return {
        "input_ids": ids.astype(np.int64, copy=False),
        "attention_mask": np.ones((batch, past + length), np.int64),
        "position_ids": np.tile(np.arange(past, past + length, dtype=np.int64), (batch, 1)),
    }


def decoder_feeds(ids: np.ndarray, cache: Sequence[np.ndarray]) -> Arrays:
    """Return all inputs of a decoder's graph, for ids (B, T) without padding after `cache`."""
    return token_feeds(ids, cache[0].shape[2]) | cache_feeds(cache)


def cache_feeds(arrays: Sequence[np.ndarray], side: str = "") -> Arrays:
    """Name cached keys and values, (B, K, P, D) each, layer after layer.

    `side` is "decoder" or "encoder" for the two caches of a translator's decoder, else empty.
    """
    middle = f"{side}." if side else ""
    return {
        f"past_key_values.{i // 2}.{middle}{('key', 'value')[i % 2]}": array
        for i, array in enumerate(arrays)
    }


def no_cache(config: ModelConfig, batch: int = 1) -> list[np.ndarray]:
    """Return an empty cache: keys and values of shape (batch, K, 0, D) for every layer."""
    shape = (batch, config.n_kv_head, 0, config.head_dim)
    return [np.zeros(shape, np.float32)] * (2 * config.n_layer)


def prompt_feeds(session: ort.InferenceSession, ids: np.ndarray) -> Arrays:
    """Return the inputs that a decoder's graph takes for one row of ids (T,), without a cache."""
    feeds, shapes = token_feeds(ids[None]), {i.name: i.shape for i in session.get_inputs()}
    cache = {
        name: np.zeros((1, shape[1], 0, shape[3]), np.float32)
        for name, shape in shapes.items()
        if name.startswith("past_key_values")
    }
    return {name: feeds[name] for name in feeds if name in shapes} | cache
