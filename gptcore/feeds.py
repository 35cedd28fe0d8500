"""The inputs of an exported graph, under the names that gptcore's graphs use.

>>> token_feeds(np.array([[5, 8, 13]]), past=2)["position_ids"]
array([[2, 3, 4]])

A graph reads the cached keys and values as past_key_values.N.key and .value, and returns them,
extended, as present.N.key and .value.
"""

import numpy as np
import onnxruntime as ort

from gptcore.config import ModelConfig

PAST, PRESENT = "past_key_values.", "present."
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


def cache_shapes(session: ort.InferenceSession) -> dict[str, list]:
    """Return the inputs of a graph that are cached keys and values, with their shapes."""
    return {i.name: i.shape for i in session.get_inputs() if i.name.startswith(PAST)}


def no_cache(config: ModelConfig, batch: int = 1) -> list[np.ndarray]:
    """Return an empty cache: keys and values of shape (batch, K, 0, D) for every layer."""
    shape = (batch, config.n_kv_head, 0, config.head_dim)
    return [np.zeros(shape, np.float32)] * (2 * config.n_layer)
