"""Schemas made narrower: replies of ordinary classes end, and are of the schema that was given."""

import json
from typing import Any

import jsonschema
import pytest
from conftest import NANO
from test_grammar import BYTES, ENDS, WORDS, after, possible

from benchmarks.serving.random_schemas import random_reply
from gptcore.checks import UserError
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.engine.schemas.grammar import json_grammar
from gptcore.engine.schemas.narrow import narrowed
from gptcore.model import load_model

DIGITS = {*b"0123456789"}
HELLO = [{"role": "user", "content": "Hello!"}]


def a_class(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


CAT = a_class(kind={"const": "cat", "type": "string"}, lives={"type": "integer"})
DOG = a_class(kind={"enum": ["dog", "puppy"], "type": "string"}, good={"type": "boolean"})


@pytest.mark.parametrize("kind", ["integer", "number", ["number", "null"]])
def test_a_number_ends(kind: Any) -> None:
    schema = a_class(n={"type": kind})
    assert DIGITS & possible(after(schema, '{"n": 12'))
    assert possible(after(schema, '{"n": 1234567890123456')) & {*b"}"}
    with pytest.raises(UserError, match="does not fit the schema"):
        after(schema, '{"n": 12345678901234567')
    if kind != "integer":
        assert possible(after(schema, '{"n": -1.123456789')) == {*b"}"}


def test_a_number_has_the_bounds_that_it_is_given() -> None:
    assert possible(after({"type": "number", "minimum": 0, "maximum": 9}, "")) == DIGITS
    assert narrowed({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}) == {
        "type": "integer", "exclusiveMinimum": 0, "maximum": 9,
    }  # fmt: skip
    assert narrowed({"type": "number", "multipleOf": 0.5})["multipleOf"] == 0.5


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "allOf": [{"multipleOf": 10}]},
        {"allOf": [{"type": "number"}, {"multipleOf": 5}]},
        {"$defs": {"n": {"type": "number"}}, "$ref": "#/$defs/n", "multipleOf": 5},
    ],
)
def test_a_multiple_of_another_part_is_written(schema: dict[str, Any]) -> None:
    """It had no common multiple with nine decimals that llguidance can hold."""
    assert possible(after(schema, "10")) >= ENDS


def test_a_class_without_fields_ends() -> None:
    assert possible(after({"type": "object", "properties": {}}, "{")) == {*b"}"}


def test_a_number_between_bounds_closer_than_nine_decimals_is_written() -> None:
    schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-12}
    assert possible(after(schema, "0.00000000000")) & DIGITS


def test_the_fraction_of_a_second_ends() -> None:
    schema = {"type": "string", "format": "date-time"}
    assert possible(after(schema, '"2026-11-27T23:30:00.123456+00:00')) == {*b'"'}
    with pytest.raises(UserError, match="does not fit the schema"):
        after(schema, '"2026-11-27T23:30:00.' + "1" * 20)


def test_an_object_has_the_keys_that_it_names_and_more_only_if_it_says_so() -> None:
    named = a_class(a={"type": "boolean"})
    assert possible(after(named, '{"a": true')) == {*b"}"}
    assert possible(after(named | {"additionalProperties": True}, '{"a": true')) == {*b"},"}
    assert possible(after({"type": "object"}, '{"a": true')) == {*b"},"}
    also = {"patternProperties": {"^x": {}}}
    assert possible(after(named | also, '{"a": true')) == {*b"},"}
    unnamed = named | {"required": ["a", "b"]}
    assert possible(after(unnamed, '{"a": true')) == {*b","}


def test_objects_of_several_parts_have_the_keys_of_all() -> None:
    both = {"allOf": [a_class(a={"type": "boolean"}), a_class(b={"type": "boolean"})]}
    assert after(both, '{"a": true, "b": true}').matcher.is_accepting()
    beside = a_class(a={"type": "boolean"}) | {"anyOf": [a_class(b={"type": "null"})]}
    assert after(beside, '{"a": true, "b": null}').matcher.is_accepting()


@pytest.mark.parametrize("required", [True, False])
def test_a_union_whose_classes_have_a_tag_is_written_through_references(required: bool) -> None:
    """pydantic writes it, with its discriminator, and no `required` for a tag with a default."""
    classes = [dict(each) for each in (CAT, DOG)]
    for each in classes:
        each["required"] = [k for k in each["required"] if required or k != "kind"]
    union = {
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat"}},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    }
    schema = a_class(pet=union) | {"$defs": {"Cat": classes[0], "Dog": classes[1]}}
    given = json.dumps(schema)
    for text in (
        '{"pet": {"kind": "cat", "lives": 9}}',
        '{"pet": {"kind": "puppy", "good": true}}',
    ):
        assert after(schema, text).matcher.is_accepting()
        jsonschema.validate(json.loads(text), schema)
    assert json.dumps(schema) == given, "the caller's schema stays as it is"


def test_a_union_that_could_be_both_is_refused() -> None:
    same = {"$defs": {"A": CAT}, "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}
    with pytest.raises(UserError, match="oneOf is supported only if no value fits two"):
        json_grammar(same, BYTES)
    untyped = [{k: v for k, v in each.items() if k != "type"} for each in (CAT, DOG)]
    assert "oneOf" in narrowed({"oneOf": untyped}), "5 would be of both"


def test_a_class_of_itself_may_be_a_union() -> None:
    union = {"oneOf": [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Pair"}]}
    leaf = a_class(t={"const": "leaf"}, v={"type": "integer"})
    pair = a_class(t={"const": "pair"}, left=union, right=union)
    schema = {"$defs": {"Leaf": leaf, "Pair": pair}, **union}
    replies = [random_reply(json_grammar(schema, WORDS), WORDS, i) for i in range(20)]
    ended = [reply for reply in replies if reply.finish == "end"]
    assert len(ended) > 10
    for reply in ended:
        jsonschema.validate(json.loads(reply.text), schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"required": [[1], {}], "properties": {"a": {}}},
        {"allOf": 5, "oneOf": 3},
        {"oneOf": [{"$ref": 5}, 7, None]},
        {"oneOf": [{"type": "object", "properties": 5}]},
        {"type": [["integer"]], "format": ["time"]},
        {"oneOf": [a_class(a={"enum": [[1]]}), a_class(a={"enum": 5})]},
    ],
)
def test_what_is_no_schema_is_left_to_be_refused(schema: dict[str, Any]) -> None:
    assert narrowed(schema).keys() >= schema.keys()


def test_a_small_model_ends_its_replies_to_an_ordinary_class() -> None:
    """None of these ended: it wrote digits, or keys of its own, up to the end of its context."""
    model = load_model(NANO, threads=1, device="cpu", variant="fp32")
    schema = a_class(name={"type": "string", "maxLength": 9}, age={"type": "integer"},
                    weight={"type": "number"})  # fmt: skip
    for seed in range(8):
        pieces = list(chat(model, HELLO, Sampling(1, seed=seed), 500, schema=schema))
        assert pieces[-1].finish == "end"
        jsonschema.validate(json.loads("".join(piece.text for piece in pieces)), schema)
