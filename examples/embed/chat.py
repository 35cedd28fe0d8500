"""Chat with an embedding kit: ONNX Runtime and a tokenizer, nothing else. Copy it.

    pip install onnxruntime tokenizers
    python -m export embed models/nano --out kit
    python examples/embed/chat.py kit "Tell me a story about a cat."
    python examples/embed/chat.py kit "Tell me a story." --temperature 0.8
    python examples/embed/chat.py kit --check           compares it with kit/vectors.json

kit/CONTRACT.md says what is done here and why.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Kit:
    """A model of a kit, which reads messages or a text and writes token ids."""

    def __init__(self, folder: Path):
        self.contract = json.loads((folder / "contract.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # whoever types <|end|> has typed text
        self.session = ort.InferenceSession(folder / self.contract["files"]["sampling"])
        self.stop = set(self.contract["stop"])

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids if text else []

    def join(self, parts: list[int | str]) -> list[int]:
        """Return the ids of a template's parts. Words beside each other are encoded together."""
        ids, text = [], ""
        for part in parts:
            if isinstance(part, int):
                ids += [*self.encode(text), part]
                text = ""
            else:
                text += part
        return ids + self.encode(text)

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        form = self.contract["chat"]
        if form is None:  # a model that only continues texts
            return self.join([*self.contract["text"], messages[-1]["content"]])
        has_system = messages[0]["role"] == "system"
        parts = [*form["opening" if has_system else "opening_alone"]]
        for message in messages:
            before, after = form[message["role"]]
            content = message["content"].strip() if form["trims"] else message["content"]
            parts += [*before, content, *after]
        return self.join(parts + form["reply"])

    def run(self, graph: ort.InferenceSession, ids: list[int], cache: dict, **more) -> list:
        """Return a graph's outputs for ids after what is cached."""
        past = next(iter(cache.values())).shape[2]
        total = past + len(ids)
        inputs = {
            "input_ids": np.array([ids]),
            "position_ids": np.arange(past, total)[None],
            "attention_mask": np.ones((1, total), np.int64),
        }
        return graph.run(None, inputs | cache | more)

    def empty_cache(self) -> dict[str, np.ndarray]:
        inputs = self.contract["graphs"]["sampling"]["inputs"]
        shapes = {i["name"]: i["shape"] for i in inputs if i["name"].startswith("past")}
        return {
            name: np.zeros((1, heads, 0, size), np.float32)
            for name, (_, heads, _, size) in shapes.items()
        }

    def write(self, ids: list[int], n: int, draw=random.random, **how: float) -> Iterator[int]:
        """Yield up to n ids, of which one that ends the reply is the last.

        how: temperature, top_k and top_p.
        """
        settings = {
            "temperature": np.array([how["temperature"]], np.float32),
            "top_k": np.array([how["top_k"]], np.int64),
            "top_p": np.array([how["top_p"]], np.float32),
        }
        cache, room = self.empty_cache(), self.contract["limits"]["context"] - len(ids)
        if room < 1:
            raise SystemExit(f"the message has {len(ids)} tokens, too many for the context")
        for _ in range(min(n, room)):
            draws = np.array([draw()], np.float32)
            chosen, *caches = self.run(self.session, ids, cache, draws=draws, **settings)
            cache, ids = dict(zip(cache, caches)), [int(chosen[0, 0])]
            yield ids[0]
            if ids[0] in self.stop:
                return


def check(kit: Kit, folder: Path) -> bool:
    """Print how many of the kit's vectors come out as they should; return whether all do."""
    vectors = json.loads((folder / "vectors.json").read_text(encoding="utf-8"))
    portable = ort.InferenceSession(folder / kit.contract["files"]["portable"])
    greedy = {"temperature": 0, "top_k": 0, "top_p": 1}
    right = {"texts": 0, "prompts": 0, "logits": 0, "greedy": 0, "draws": 0}
    right["texts"] = sum(kit.encode(v["text"]) == v["ids"] for v in vectors["texts"])
    for v in vectors["prompts"]:
        opened = [*kit.contract["text"], v.get("text", "")]
        ids = kit.prompt(v["messages"]) if "messages" in v else kit.join(opened)
        logits = kit.run(portable, v["ids"], kit.empty_cache())[0][0, -1]
        right["prompts"] += ids == v["ids"]
        far = max(abs(float(logits[i]) - value) for i, value in v["logits"])
        right["logits"] += far <= vectors["logits_limit"]
        right["greedy"] += list(kit.write(v["ids"], len(v["greedy"]), **greedy)) == v["greedy"]
    for v in vectors["draws"]:
        how = {name: v[name] for name in greedy}
        ids = vectors["prompts"][v["prompt"]]["ids"]
        right["draws"] += list(kit.write(ids, 1, lambda v=v: v["draw"], **how)) == [v["id"]]
    of = {name: len(vectors.get(name, vectors["prompts"])) for name in right}
    for name, n in right.items():
        print(f"{name}: {n} of {of[name]}")
    return right == of


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kit", type=Path)
    parser.add_argument("message", nargs="?", default="Hello!")
    parser.add_argument("--temperature", type=float, default=0, help="0: the likeliest token")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not (options.kit / "contract.json").is_file():
        parser.error(f"{options.kit} is not a kit: write one with python -m export embed")
    kit = Kit(options.kit)
    if options.check:
        raise SystemExit(0 if check(kit, options.kit) else 1)
    ids = kit.prompt([{"role": "user", "content": options.message}])
    stream = DecodeStream(skip_special_tokens=True)
    for token in kit.write(ids, 500, temperature=options.temperature, top_k=50, top_p=1):
        print(stream.step(kit.tokenizer, token) or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
