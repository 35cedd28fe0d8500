"""A JSON schema made narrower, so that a reply of it ends.

>>> narrowed({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}})
{'type': 'object', 'properties': {'age': {'type': 'integer', 'minimum': 0, \
'maximum': 9007199254740992}}, 'additionalProperties': False}

Clients send the schemas of ordinary classes. These allow keys that the class does not have, and
digits without end: a small model, once in them, writes them until its tokens are used up. Every
value that fits the narrower schema also fits the given one.
"""

from copy import deepcopy
from typing import Any

from gptcore.engine.schemas.supported import EXACT, Part, parts, target

FINEST = 1e-9  # of numbers that are not whole: nine decimals
LENGTHS = {"date-time": 32, "time": 21}  # microseconds and +01:00, or eleven decimals and Z
OF_OBJECTS = ("properties", "patternProperties", "additionalProperties", "required")


def narrowed(schema: Part) -> Part:
    """Return a schema that `check_schema` has accepted, narrower."""
    schema = deepcopy(schema)
    every = [part for _, part in parts(schema)]
    for part in every:
        if "anyOf" not in part and tell_apart(schema, listed(part, "oneOf")):
            part["anyOf"] = part.pop("oneOf")
        # Names are always texts; zod states it for every record.
        if part.get("propertyNames") == {"type": "string"}:
            del part["propertyNames"]
        bound_number(part)
        bound_time(part)
    # Not beside other multiples: the common multiple would be too large for a number of 32 bits.
    if not any("multipleOf" in part for part in every):
        for part in every:
            bound_digits(part)
    # Where several parts hold for one object, each may know keys that the others do not.
    if not any(joins(part) for part in every):
        for part in every:
            close(part)
    return schema


def tell_apart(schema: Part, options: list[Any]) -> bool:
    """Whether a property has different texts in each option; if so, it becomes required.

    llguidance sees this too, but not through references, which pydantic writes.
    """
    found = [target(schema, o["$ref"]) if is_reference(o) else o for o in options]
    if not found or not all(isinstance(o, dict) and o.get("type") == "object" for o in found):
        return False
    tags = [constants(option) for option in found]
    for name in tags[0]:
        texts = [text for tag in tags for text in tag.get(name, ())]
        if all(name in tag for tag in tags) and len({*texts}) == len(texts):
            for option in found:
                option["required"] = [*listed(option, "required"), name]
            return True
    return False


def is_reference(option: Any) -> bool:
    return isinstance(option, dict) and [*option] == ["$ref"] and isinstance(option["$ref"], str)


def constants(option: Part) -> dict[str, list[str]]:
    """Return the properties whose value must be one of a few texts, with these texts."""
    properties = option.get("properties")
    if not isinstance(properties, dict):
        return {}
    named = {k: p.get("enum", [p.get("const")]) for k, p in properties.items() if type(p) is dict}
    return {k: v for k, v in named.items() if type(v) is list and all(type(t) is str for t in v)}


def bound_number(part: Part) -> None:
    """Bound the digits of a number: larger ones are not exact, and Python reads 1e999 as inf."""
    kind = part.get("type")
    if not isinstance(kind, str | list) or "const" in part or "enum" in part:
        return
    if "integer" in kind or "number" in kind:
        if "exclusiveMinimum" not in part:
            part.setdefault("minimum", -EXACT)
        if "exclusiveMaximum" not in part:
            part.setdefault("maximum", EXACT)


def bound_digits(part: Part) -> None:
    """Bound the decimals of a number."""
    kind = part.get("type")
    is_listed = "const" in part or "enum" in part
    if isinstance(kind, str | list) and "number" in kind and not is_listed:
        part["multipleOf"] = FINEST


def bound_time(part: Part) -> None:
    """Bound the digits of a second's fraction."""
    name = part.get("format")
    if isinstance(name, str) and name in LENGTHS:
        part.setdefault("maxLength", LENGTHS[name])


def joins(part: Part) -> bool:
    """Whether a part and others hold for the same value."""
    n = len(listed(part, "allOf")) + sum(key in part for key in ("anyOf", "oneOf", "$ref"))
    return n > 0 and n + any(key in part for key in OF_OBJECTS) > 1


def close(part: Part) -> None:
    """Forbid keys that an object does not name, unless it says that it may have others."""
    properties = part.get("properties")
    if not isinstance(properties, dict) or "minProperties" in part:
        return
    if all(str(name) in properties for name in listed(part, "required")):
        part.setdefault("additionalProperties", False)


def listed(part: Part, key: str) -> list[Any]:
    value = part.get(key)
    return value if isinstance(value, list) else []
