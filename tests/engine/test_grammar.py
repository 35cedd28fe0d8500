"""Replies that are JSON of a schema, over random logits; and schemas that are refused."""

import json
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

from benchmarks.serving.random_schemas import drawn, judged, random_reply
from gptcore.checks import UserError
from gptcore.engine.generate import Reply, Request, generate
from gptcore.engine.sampling import Sampling
from gptcore.engine.schemas.grammar import Grammar, json_grammar
from gptcore.engine.schemas.supported import where
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
WORDS = Tokenizer.load(ROOT / "models" / "nano")
ENDS = {*BYTES.special.values()}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def every_end_is_valid(n: int, seed: int) -> Counter[str]:
    """How the random replies to `n` random schemas end; each that ends by itself is judged."""
    ends: Counter[str] = Counter()
    for i, schema in drawn(n, seed):
        tokenizer = (BYTES, WORDS)[i % 2]
        try:
            grammar = json_grammar(schema, tokenizer)
        except UserError as error:  # nothing is of it, or it is beyond llguidance
            assert str(error).startswith("schema") and "\n" not in str(error)
            ends["refused"] += 1
            continue
        reply = random_reply(grammar, tokenizer, i)
        ends[str(reply.finish)] += 1
        if reply.finish == "end":
            judged(schema, reply.text)
    return ends


def test_every_reply_that_ends_by_itself_is_json_of_its_schema() -> None:
    ends = every_end_is_valid(60, seed=0)
    assert ends["end"] > 50 and ends["refused"] < 6


@pytest.mark.slow
def test_every_reply_that_ends_by_itself_is_json_of_its_schema_for_500_more() -> None:
    ends = every_end_is_valid(520, seed=1000)
    assert ends["end"] + ends["length"] > 500 and ends["length"] < 25


def after(schema: dict[str, Any], text: str) -> Grammar:
    return json_grammar(schema, BYTES).begin(BYTES.encode(text))


def possible(grammar: Grammar, n: int = BYTES.vocab_size) -> set[int]:
    return set(np.flatnonzero(np.isfinite(grammar.restrict(np.zeros(n, np.float32)))).tolist())


def test_a_complete_text_ends_by_any_special_token_and_no_other_does() -> None:
    assert possible(after(PERSON, "")) == {ord("{")}
    assert possible(after(PERSON, '{"name": "Ada", "age": 3')) == {*b"0123456789}"}
    assert possible(after(PERSON, '{"name": "Ada", "age": 36}')) == ENDS
    assert possible(after({"type": "integer"}, "7")) == {*b"0123456789"} | ENDS


def test_logits_of_ids_that_the_tokenizer_lacks_are_not_chosen() -> None:
    assert possible(after({}, ""), n=512) == possible(after({}, ""))


def test_an_object_is_any_json_object() -> None:
    reply = random_reply(json_grammar({"type": "object"}, BYTES), BYTES, seed=4)
    assert reply.finish == "end" and isinstance(json.loads(reply.text), dict)


def test_a_reply_goes_on_with_what_it_begins_with() -> None:
    grammar = json_grammar(PERSON, BYTES)
    begun = tuple(BYTES.encode('{"name": "Ada", "a'))
    for _ in range(2):  # the first reply leaves no trace
        reply = Reply(Request([1], begun=begun, grammar=grammar), BYTES, 100)
        assert reply.grammar and possible(reply.grammar) == {ord("g")}
        reply.add(ord("g"), np.zeros(BYTES.vocab_size, np.float32))
        assert possible(reply.grammar) == {ord("e")}
    wrong = tuple(BYTES.encode('{ "name"'))
    with pytest.raises(UserError, match="the beginning of the reply does not fit"):
        Reply(Request([1], begun=wrong, grammar=grammar), BYTES, 100)


class Wild:
    """A session whose logits are drawn from what it has read."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.ids = [*ids[:-1]]
        return self.step(ids[-1])

    def step(self, token_id: int) -> np.ndarray:
        self.ids.append(token_id)
        rng = np.random.default_rng(len(self.ids))
        return rng.normal(size=BYTES.vocab_size).astype(np.float32)


def test_the_probabilities_told_are_the_models_own() -> None:
    request = Request([1], Sampling(0), 40, n_top=2, grammar=json_grammar(PERSON, BYTES))
    pieces = list(generate(Wild(), Reply(request, BYTES, 90)))
    told = [likelihood for piece in pieces for likelihood in piece.likelihoods]
    free = generate(Wild(), Reply(Request([1], Sampling(0), 1, n_top=2), BYTES, 90))
    assert told[0].token_id == ord("{") and told[0].top == next(free).likelihoods[0].top


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (True, "must be a JSON object"),
        ([{}], "must be a JSON object"),
        ({"not": {}}, 'schema: not supported: ["not"]'),
        ({"items": {"properties": {"a": {"uniqueItems": True}}}},
         'schema/items/properties/a: not supported: ["uniqueItems"]'),
        ({"properties": {"a": {"format": "colour"}}}, "/properties/a: Unknown format: colour"),
        ({"anyOf": [{"type": "null"}, {"pattern": "(?=a)"}]}, "schema/anyOf/1: regex parse error"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "use anyOf"),
        ({"$ref": "#"}, "no JSON fits it"),
        ({"$ref": "#/$defs/a"}, "$ref '#/$defs/a' leads to no part"),
        ({"$ref": "http://127.0.0.1:1/a.json"}, "leads to no part of its"),
        ({"$ref": "#a", "$defs": {"b": {"$anchor": "a"}}}, "write #/$defs/NAME"),
        # What is no part of a schema is not checked as one.
        ({"$ref": "#/x/a", "x": {"a": {"multipleOf": 999983}}}, "leads to no part of its"),
        ({"$ref": "#/default", "default": {"minProperties": 2}}, "leads to no part of its"),
        ({"$defs": {"a": {"$id": "b"}}}, "schema/$defs/a: an $id"),
        ({"allOf": [{"$ref": "#"}, {"type": "object"}]}, "circular"),
        ({"type": "integer", "minimum": 4, "maximum": 3}, "minimum (4) is greater"),
        ({"properties": {"a\nb": {"enum": 3}}}, "schema/properties/a?b: enum must be an array"),
        ({"type": "text"}, "Invalid type: text"),
        ({"required": "a"}, "Expected array for 'required'"),
        ({"minProperties": 2}, "minProperties=2 is not supported"),
        ({"minProperties": 10**999}, f"minProperties=1{'0' * 59}... is not supported"),
        ({"multipleOf": 10**999}, f"multipleOf=1{'0' * 59}... is not supported"),
        ({"maximum": 10**999}, f"maximum holds 1{'0' * 59}..., which is beyond"),
        ({"multipleOf": 999983}, "multipleOf=999983 is not supported"),
        ({"const": 2**60}, "beyond the exact numbers"),
        ({"const": float("nan")}, "NaN"),
        ({"const": "\ud800"}, "half of a character"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "not supported"),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_a_schema_that_is_not_supported_is_refused_by_its_part(schema: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        json_grammar(schema, BYTES)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_the_part_at_fault_is_looked_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {f"p{i}": {"type": "integer"} for i in range(900)}}
    tried: list[Any] = []

    def is_wrong(part: Any) -> bool:
        tried.append(part)
        return False

    clock = SimpleNamespace(monotonic=lambda: 0.01 * len(tried))
    monkeypatch.setattr("gptcore.engine.schemas.supported.time", clock)
    assert where(schema, is_wrong, 0.095) == ("", schema)
    assert len(tried) == 10


# Schemas of a few lines that would cost llguidance seconds, gigabytes or the process.
HOSTILE = """
from itertools import product
from gptcore.checks import UserError
from gptcore.engine.schemas.grammar import json_grammar
from gptcore.text.tokenizer import Tokenizer

def nested(part, n):
    for _ in range(n):
        part = {"items": part}
    return part

def chain(n):
    defs = {f"d{i}": {"prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{n}": {}}}

def unions(n, k, key):
    one = lambda j, i: {"properties": {f"a{j}": {"const": f"{i}"}}, "required": [f"a{j}"]}
    return {"allOf": [{key: [one(j, i) for i in range(n)]} for j in range(k)]}

def squares(n):
    both = lambda i: [{"$ref": f"#/$defs/d{i}"}] * 2
    defs = {f"d{i + 1}": {"allOf": both(i)} for i in range(n)}
    return {"$ref": f"#/$defs/d{n}", "$defs": defs | {"d0": {"enum": ["a", "b"]}}}

u = {"$defs": {"u": unions(5, 1, "anyOf")}, "allOf": [{"$ref": "#/$defs/u"}] * 12}
names = {f"k{i}": {"type": "string"} for i in range(5000)}
tokenizer = Tokenizer({bytes([byte]): byte for byte in range(256)})
refused = {
    "nested": nested({}, 900), "very nested": nested({}, 100_000), "chain": chain(3000),
    "unions": unions(100, 2, "anyOf"), "exclusive": unions(100, 2, "oneOf"), "again": u,
    "squares": squares(14), "more squares": squares(30),
    "many": {"properties": names}, "long": {"enum": ["a" * 70_000]},
    "patterns": {"allOf": [{"pattern": f"(a|b)*a(a|b){{20}}c{i}"} for i in range(20)]},
    "keys": {"patternProperties": {f"^a{i}x": {} for i in range(300)}},
    "properties": {"properties": {f"p{i}": {"pattern": r"\\p{L}{1,60}0"} for i in range(900)}},
    "formats": {"properties": {f"p{i}": {"format": "uri"} for i in range(101)}},
    "pattern": {"pattern": "(a|b)?" * 9000}, "multiples": {"multipleOf": 999983},
    "together": {"allOf": [{"type": "integer", "multipleOf": n} for n in (97, 89, 83)]},
}
within = {
    "chain": chain(240), "nested": nested({}, 90), "enum": {"enum": [f"v{i}" for i in range(5000)]},
    "backtracking": {"pattern": "^(a*)*(a|a)*b$"}, "recursion": {"items": {"$ref": "#"}},
    "anything": {"$ref": "#/$defs/any", "$defs": {"any": True}},
    "long text": {"minLength": 10**9}, "long list": {"type": "array", "minItems": 10**12},
}
for name, schema in (*refused.items(), *within.items()):
    try:
        json_grammar(schema, tokenizer)
        print(name, "taken")
    except UserError as error:
        assert "\\n" not in str(error)
        print(name, "refused")
print(len(refused), len(within))
"""


def test_a_hostile_schema_is_refused_or_costs_little_and_never_ends_the_process() -> None:
    program = [sys.executable, "-c", HOSTILE]
    told = subprocess.run(program, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert told.returncode == 0, told.stderr[-1000:]
    *lines, counts = told.stdout.splitlines()
    verdicts = Counter(line.rpartition(" ")[2] for line in lines)
    assert [verdicts["refused"], verdicts["taken"]] == [int(n) for n in counts.split()], lines
