"""Chat with a model folder: ONNX Runtime, numpy and a tokenizer, nothing else.

    pip install onnxruntime numpy tokenizers
    python examples/onnxruntime_chat.py "Tell me a story about a cat."

This is all that a program needs to embed the model; copy it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

parser = argparse.ArgumentParser()
parser.add_argument("message")
parser.add_argument("--model", type=Path, default=Path("models/nano"))
parser.add_argument("--temperature", type=float, default=0, help="0 takes the likeliest token")
options = parser.parse_args()

config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
session = ort.InferenceSession(options.model / "onnx" / "model.onnx")

ends = config["eos_token_id"]
ends = ends if isinstance(ends, list) else [ends]
if tokenizer.token_to_id("<|assistant|>") is None:
    raise SystemExit("this model has another chat template: write its prompt below")
# The chat template. A user's "<|end|>" must stay text, so "<|" is broken up.
text = options.message.replace("<|", "< |")
prompt = f"<|endoftext|><|user|>{text}<|end|><|assistant|>"
ids = tokenizer.encode(prompt).ids

n_kv_head, head_dim = config["num_key_value_heads"], config["head_dim"]
cache = {
    f"past_key_values.{layer}.{part}": np.zeros((1, n_kv_head, 0, head_dim), np.float32)
    for layer in range(config["num_hidden_layers"])
    for part in ("key", "value")
}
stream = DecodeStream(skip_special_tokens=True)
rng, past = np.random.default_rng(), 0
while past + len(ids) <= config["max_position_embeddings"]:
    total = past + len(ids)
    inputs = {
        "input_ids": np.array([ids]),
        "position_ids": np.arange(past, total)[None],
        "attention_mask": np.ones((1, total), np.int64),
    }
    logits, *caches = session.run(None, inputs | cache)
    cache, past = dict(zip(cache, caches)), total
    scores = logits[0, -1]
    if options.temperature > 0:  # Gumbel noise makes the argmax a sample (arXiv 1611.01144)
        scores = scores / options.temperature + rng.gumbel(size=scores.shape)
    ids = [int(scores.argmax())]
    if ids[0] in ends:
        break
    print(stream.step(tokenizer, ids[0]) or "", end="", flush=True)
print()
