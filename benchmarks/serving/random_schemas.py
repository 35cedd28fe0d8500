"""Random JSON schemas, a random reply to each, and a judge of both."""

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np

from gptcore.engine.generate import Reply, Request
from gptcore.engine.sampling import Sampling, sample
from gptcore.engine.schemas.grammar import Grammar
from gptcore.text.tokenizer import Tokenizer

WORDS = ("name", "age", "é", "a b", 'q"', "\\", "日本", "", "x" * 30, "line\nbreak")
PATTERNS = ("^[a-z]{2,5}$", "[0-9]", "^(ab|c)*$", "^\\d{3}-\\d{2}$", "^\\w+@\\w+$", "é+", "^.{3}$")
FORMATS = ("date", "time", "date-time", "ipv4", "ipv6", "uuid", "email", "hostname", "uri")
VALUES = (None, True, False, 0, -7, 3.5, 1e-3, 2**40, "", "a", "日本", [], [1, "a"], {}, {"k": [1]})


class Schemas:
    """Schemas drawn from a seed."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)

    def root(self) -> dict[str, Any]:
        defs = {f"d{i}": self.part(2) for i in range(self.draw.randint(0, 2))}
        part = self.part(3, [*defs])
        if self.draw.random() < 0.2:  # a list or a tree that holds itself
            defs["tree"] = self.closed({"value": self.part(1), "next": {"$ref": "#/$defs/tree"}})
            defs["tree"]["required"] = ["value"]
            part = {"$ref": "#/$defs/tree"}
        return part | ({"$defs": defs} if defs else {})

    def part(self, depth: int, names: list[str] = []) -> Any:  # noqa: B006 (it is read alone)
        draw = self.draw
        leaves = (self.text, self.number, self.fixed, self.plain)
        inner = (self.record, self.record, self.listed, self.mixed, self.merged, self.exclusive)
        if names and draw.random() < 0.2:
            return {"$ref": f"#/$defs/{draw.choice(names)}"}
        make = draw.choice(inner if depth and draw.random() < 0.8 else leaves)
        part = make(depth - 1, names) if make in inner else make()
        if draw.random() < 0.1:
            part |= {"title": "a part", "description": 'says "what"', "default": 1, "examples": [2]}
        return part

    def plain(self) -> dict[str, Any]:
        kinds = ["string", "integer", "number", "boolean", "null"]
        return {"type": self.draw.choice([*kinds, self.draw.sample(kinds, 2)])}

    def text(self) -> dict[str, Any]:
        draw = self.draw
        part: dict[str, Any] = {"type": "string"}
        kind = draw.randrange(4)
        if kind == 0:
            part["pattern"] = draw.choice(PATTERNS)
        elif kind == 1:
            part["format"] = draw.choice(FORMATS)
        else:
            part["minLength"] = draw.randint(0, 4)
            part["maxLength"] = part["minLength"] + draw.randint(0, 9)
        return part

    def number(self) -> dict[str, Any]:
        draw = self.draw
        part: dict[str, Any] = {"type": draw.choice(("integer", "number"))}
        low = draw.choice((draw.randint(-200, 200), round(draw.uniform(-9, 9), 2)))
        if draw.random() < 0.6:
            part[draw.choice(("minimum", "exclusiveMinimum"))] = low
        if draw.random() < 0.6:
            part[draw.choice(("maximum", "exclusiveMaximum"))] = low + draw.randint(2, 5000)
        if draw.random() < 0.3:
            part["multipleOf"] = draw.choice((2, 5, 25, 100, 0.5, 0.25))
        return part

    def fixed(self) -> dict[str, Any]:
        if self.draw.random() < 0.5:
            return {"const": self.draw.choice(VALUES)}
        return {"enum": self.draw.sample(VALUES, self.draw.randint(1, 5))}

    def closed(self, properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def record(self, depth: int, names: list[str]) -> dict[str, Any]:
        draw = self.draw
        keys = draw.sample(WORDS, draw.randint(0, 4))
        part = self.closed({key: self.part(depth, names) for key in keys})
        part["required"] = draw.sample(keys, draw.randint(0, len(keys)))
        open_ = draw.randrange(4)
        if open_ == 0:
            del part["additionalProperties"]
        elif open_ == 1:
            part["additionalProperties"] = self.part(0)
        elif open_ == 2:
            part["patternProperties"] = {"^p[0-9]$": self.part(0)}
        if draw.random() < 0.1:
            part["minProperties"] = 1
        return part

    def listed(self, depth: int, names: list[str]) -> dict[str, Any]:
        draw = self.draw
        part: dict[str, Any] = {"type": "array", "items": self.part(depth, names)}
        part["minItems"] = draw.randint(0, 2)
        if draw.random() < 0.7:
            part["maxItems"] = part["minItems"] + draw.randint(0, 3)
        if draw.random() < 0.3:
            part["prefixItems"] = [self.part(0), self.part(depth, names)]
        return part

    def mixed(self, depth: int, names: list[str]) -> dict[str, Any]:
        return {"anyOf": [self.part(depth, names) for _ in range(self.draw.randint(1, 3))]}

    def merged(self, depth: int, names: list[str]) -> dict[str, Any]:
        one, other = ({k: self.part(depth) for k in keys} for keys in (("a", "b"), ("c",)))
        parts = [{"type": "object", "properties": p, "required": [*p][:1]} for p in (one, other)]
        return {"allOf": parts} if self.draw.random() < 0.5 else parts[0] | {"allOf": parts[1:]}

    def exclusive(self, depth: int, names: list[str]) -> dict[str, Any]:
        return {"oneOf": [{"type": "string", "maxLength": 5}, self.number(), self.listed(0, names)]}


def random_reply(grammar: Grammar, tokenizer: Tokenizer, seed: int) -> Reply:
    """A reply whose logits are drawn, and lean to what closes a text, so that most replies end."""
    rng, vocabulary = np.random.default_rng(seed), tokenizer.vocab_size
    lean = np.zeros(vocabulary, np.float32)
    lean[[*tokenizer.special.values(), *(tokenizer.encode(c)[0] for c in '"]},')]] = 5
    reply = Reply(Request([1], max_tokens=1500, grammar=grammar), tokenizer, block_size=1510)
    while not reply.finish:
        logits = rng.normal(size=vocabulary).astype(np.float32) * 2 + lean
        chosen = sample(reply.allowed(logits), Sampling(1.0, top_k=0), rng.random(), reply.ids)
        reply.add(chosen, logits)
    return reply


def judged(schema: dict[str, Any], text: str) -> None:
    """Raise an error unless a text is JSON of a schema."""
    formats = jsonschema.FormatChecker(["date", "ipv4", "ipv6", "uuid", "email"])
    judge = jsonschema.Draft202012Validator(schema, format_checker=formats)
    judge.validate(json.loads(text, parse_constant=lambda name: 1 / 0))


def drawn(n: int, seed: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for i in range(seed, seed + n):
        yield i, Schemas(i).root()
