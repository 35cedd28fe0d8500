"""Replies bound to random JSON schemas: are they valid, and what does a token's mask cost?

    python benchmarks/serving/schemas.py models/default [--schemas 500] [--seed 0] [--threads 1]

Each schema gets one reply, of random logits over the model's vocabulary, which goes where no model
would; the package jsonschema judges each that ends by itself. The schema and the masks of its reply
are then made once more for their times, beside the model's own step after 64 tokens. Exit code 1 if
a reply is not of its schema.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import jsonschema
import numpy as np

from benchmarks.export.variants import seconds
from benchmarks.serving.random_schemas import drawn, judged, random_reply
from gptcore.checks import UserError
from gptcore.engine.schemas.grammar import json_grammar
from gptcore.model import OnnxModel, load_model
from gptcore.text.tokenizer import Tokenizer

CONTEXT, STEPS = 64, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of the model's step")
    options = parser.parse_args()
    model = load_model(options.model, threads=options.threads, device="cpu")
    seen: Counter[str] = Counter()
    times: dict[str, list[float]] = {"a schema compiled": [], "a token's mask": []}
    for number, schema in drawn(options.schemas, options.seed):
        ids = judge(schema, model.tokenizer, number, seen)
        if ids is not None:
            compiled, *masks = mask_seconds(schema, model.tokenizer, ids)
            times["a schema compiled"].append(compiled)
            times["a token's mask"] += masks
    times["the model's step"] = step_seconds(model)
    told = ", ".join(f"{n} {what}" for what, n in sorted(seen.items()))
    print(f"{options.schemas} schemas: {told}")
    print(f"\n| ms, vocabulary {model.config.vocab_size:,} | median | 99th of 100 | highest | n |")
    print("|---|--:|--:|--:|--:|")
    for what, values in times.items():
        marks = (statistics.median(values), np.quantile(values, 0.99), max(values))
        print(f"| {what} | {' | '.join(f'{1e3 * mark:.3f}' for mark in marks)} | {len(values):,} |")
    sys.exit(1 if seen["not of the schema"] else 0)


def judge(schema: Any, tokenizer: Tokenizer, seed: int, seen: Counter[str]) -> list[int] | None:
    """Count how a random reply to a schema ends; returns its ids, or None: it was refused."""
    try:
        reply = random_reply(json_grammar(schema, tokenizer), tokenizer, seed)
    except UserError:
        seen["refused"] += 1
        return None
    if reply.finish != "end":
        seen["cut at their length"] += 1
        return reply.ids
    try:
        judged(schema, reply.text)
        seen["valid"] += 1
    except (jsonschema.ValidationError, ValueError, ZeroDivisionError) as error:
        seen["not of the schema"] += 1
        print(f"not of the schema: {reply.text!r}\n    {schema}\n    {error}")
    return reply.ids


def mask_seconds(schema: Any, tokenizer: Tokenizer, ids: list[int]) -> Iterator[float]:
    """Yield the seconds of compiling a schema, then those of each mask of a reply."""
    logits = np.zeros(tokenizer.vocab_size, np.float32)
    found = []
    yield seconds(lambda: found.append(json_grammar(schema, tokenizer)))
    grammar = found[0].begin(())
    for token_id in ids:
        yield seconds(lambda: grammar.restrict(logits))
        grammar.add(token_id)


def step_seconds(model: OnnxModel) -> list[float]:
    session = model.session()
    session.prefill([1] * CONTEXT)
    return [seconds(lambda: session.step(1)) for _ in range(STEPS)]


if __name__ == "__main__":
    main()
