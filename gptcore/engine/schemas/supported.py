"""What a JSON schema may be made of, and which part of it is at fault.

>>> [path for path, _ in parts({"properties": {"age": {"type": "integer"}}})]
['', '/properties/age']

llguidance compiles a schema, and refuses most of what it does not know. This
module refuses what llguidance accepts but does not enforce, and what would cost a server too much:
strangers may send schemas.
"""

import json
import time
from collections.abc import Callable, Iterator
from math import lcm, prod
from typing import Any
from urllib.parse import unquote

from gptcore.checks import UserError, is_deeper, shorten, within

Part = dict[str, Any]  # a schema, or one within it

LONGEST = 2**16  # characters
MOST_PARTS = 1000
MOST_PATTERNS = 50  # of patternProperties; each is compared with each
EXPRESSIONS = ("pattern", "format")
MOST_EXPRESSIONS = 100  # of these keywords: a thousand take seconds
MOST_CHOICES = 1000  # combined where several parts hold together
PATTERN_CHOICES = 4  # as which a pattern counts; the work grows so with each more of them
LONGEST_PATTERN = 1000  # characters
MOST_DIGITS, MOST_MULTIPLE = 2, 1000  # of multipleOf; the states of its expression are its square
MOST_COMMON = 10_000  # least common multiple of all multipleOf
MOST_DEPTH = 100  # of the JSON
TOO_DEEP = "the schema is nested too deeply: simplify it"
EXACT = 2**53  # greater numbers are not exact in llguidance, as in JavaScript

ONE = ("items", "additionalItems", "additionalProperties")  # keywords that hold a part,
SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")  # a list of them,
NAMED = ("properties", "patternProperties", "$defs", "definitions")  # or an object of them
JOINED = ("anyOf/", "oneOf/", "allOf/")  # parts for the same value
DEFINED = ("$defs/", "definitions/")  # parts that hold where a reference says so
# With which parts hold for one value.
JOINING = ("allOf", "anyOf", "oneOf", "$ref", "patternProperties")
NUMBERS = ("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def check_schema(schema: Any) -> None:
    """Raise UserError for a schema that is not supported, or too costly, naming the part."""
    if not isinstance(schema, dict):
        raise UserError("schema must be a JSON object")
    check_json(schema)
    check_size(schema)
    for path, part in parts(schema):
        if path and ("$id" in part or isinstance(part.get("id"), str)):
            raise UserError(f"schema{path}: an $id within a schema is not supported")
        if reason := unsupported(part):
            raise UserError(f"schema{path}: {reason}")
    check_multiples(schema)
    try:
        check_choices(schema)
    except RecursionError:
        raise UserError(TOO_DEEP) from None


def check_size(schema: Part) -> None:
    """Raise UserError if a schema has too many parts, or too many that are costly."""
    n_patterns = n_expressions = 0
    for n, (_, part) in enumerate(parts(schema), 1):
        n_patterns += sum(name.startswith("patternProperties/") for name, _ in children(part))
        n_expressions += sum(key in part for key in EXPRESSIONS)
        if n > MOST_PARTS or n_patterns > MOST_PATTERNS or n_expressions > MOST_EXPRESSIONS:
            raise UserError(
                f"the schema has more than {MOST_PARTS:,} parts, {MOST_PATTERNS} "
                f"patternProperties, or {MOST_EXPRESSIONS} patterns and formats: simplify it"
            )


def check_multiples(schema: Part) -> None:
    """Raise UserError if the common multiple of all multipleOf is too large.

    Where they hold together, it is the work.
    """
    if not any(key in part for _, part in parts(schema) for key in JOINING):
        return
    common = 1
    for path, part in parts(schema):
        multiple = part.get("multipleOf")
        if not isinstance(multiple, int | float):
            continue
        common = lcm(common, int(digits(multiple)), int(multiple) or 1)
        if common > MOST_COMMON:
            raise UserError(
                f"schema{path}: multipleOf={multiple} and those before it have the common "
                f"multiple {common:,}: at most {MOST_COMMON:,} is supported"
            )


def check_json(schema: Part) -> None:
    """Raise UserError if a schema is too long, or not JSON that other parsers read."""
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        text.encode()
    except RecursionError:
        raise UserError(TOO_DEEP) from None
    except ValueError:
        raise UserError("schema holds NaN, an infinity, or half of a character") from None
    if len(text) > LONGEST:
        raise UserError(f"the schema has {len(text):,} characters: give at most {LONGEST:,}")
    if is_deeper(schema, MOST_DEPTH):
        raise UserError(TOO_DEEP)


def unsupported(part: Part) -> str:
    """Return why a part by itself is not supported, or "" if no reason is known."""
    least = part.get("minProperties")
    if isinstance(least, int) and least > 1:
        told = shorten(str(least))
        return f"minProperties={told} is not supported, only 1: name the keys as required"
    multiple = part.get("multipleOf")
    if isinstance(multiple, int | float) and not is_simple(multiple):
        told = shorten(str(multiple))
        return f"multipleOf={told} is not supported, only {MOST_DIGITS} digits, as 0.01 or 250"
    if len(str(part.get("pattern", ""))) > LONGEST_PATTERN:
        return f"pattern has more than {LONGEST_PATTERN:,} characters"
    for name in NUMBERS:
        for number in numbers(part.get(name)):
            if abs(number) > EXACT:
                told = shorten(str(number))
                return f"{name} holds {told}, which is beyond the exact numbers (2**53)"
    return ""


def is_simple(multiple: float) -> bool:
    """Whether a number is small, and has few digits but for the zeros at its ends."""
    return 0 < multiple <= MOST_MULTIPLE and len(digits(multiple)) <= MOST_DIGITS


def digits(number: float) -> str:
    """Return a number's digits but for the zeros at its ends."""
    return str(number).partition("e")[0].replace(".", "").strip("0")


def numbers(value: Any) -> Iterator[float]:
    """Yield the numbers within a JSON value."""
    if isinstance(value, int | float):
        yield value
    for inner in within(value):
        yield from numbers(inner)


def parts(schema: Part) -> Iterator[tuple[str, Part]]:
    """Yield each part of a schema, itself first, with its path: "/properties/age"."""
    rest = [("", schema)]
    while rest:
        path, part = rest.pop(0)
        yield path, part
        rest += [(f"{path}/{name}", child) for name, child in children(part)]


def children(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the parts directly within a part, except those that are just true or false."""
    for key, value in part.items():
        found: dict[Any, Any] = {}
        if isinstance(value, dict):
            found = {key: value} if key in ONE else value if key in NAMED else {}
        elif isinstance(value, list) and key in SEVERAL:
            found = dict(enumerate(value))
        for name, child in found.items():
            if isinstance(child, dict):
                yield (key if child is value else f"{key}/{line(name)}"), child


def line(name: Any) -> str:
    """Return a name on one line, and not too long, for a message."""
    return shorten("".join(c if c.isprintable() else "?" for c in str(name)))


def check_choices(schema: Part) -> None:
    """Raise UserError if too many choices are combined where several parts hold together.

    To merge such parts, llguidance tries each choice of one with each choice of the other, also
    inside properties that both have; so the choices inside a part count, too.
    """
    known = {id(part) for _, part in parts(schema)}
    counts: dict[int, int] = {}  # of the choices in each part, by its identity
    n_combined = 0

    def count(part: Any) -> int:
        nonlocal n_combined
        if not isinstance(part, dict):
            return 1
        if id(part) in counts:
            return counts[id(part)]
        counts[id(part)] = 1  # within itself
        found = list(children(part))
        joined = [count(child) for name, child in found if name.startswith("allOf/")]
        for key in ("anyOf/", "oneOf/"):
            joined.append(sum(count(child) for name, child in found if name.startswith(key)))
        if isinstance(reference := part.get("$ref"), str):
            referred = target(schema, reference)
            # Elsewhere, in a default say, nothing has been checked.
            if id(referred) not in known and not isinstance(referred, bool):
                raise no_part(reference)
            joined.append(count(referred))
        joined.append(len(enum) if isinstance(enum := part.get("enum"), list) else 1)
        joined += [PATTERN_CHOICES for key in EXPRESSIONS if key in part]
        plain = [count(c) for name, c in found if not name.startswith((*JOINED, *DEFINED))]
        factors = [n for n in (*joined, 1 + sum(plain) - len(plain)) if n > 1]
        # By references each part may square the one before: the count stops just above the limit.
        counts[id(part)] = min(prod(factors), MOST_CHOICES + 1)
        n_combined += counts[id(part)] if len(factors) > 1 else 0
        return counts[id(part)]

    for _, part in parts(schema):
        count(part)
    if n_combined > MOST_CHOICES:
        raise UserError(
            f"the schema combines more than {MOST_CHOICES:,} choices of anyOf, oneOf and enum "
            f"where several of its parts hold together: simplify it"
        )


def target(schema: Part, reference: str) -> Any:
    """Return what a reference leads to; raises UserError unless it is a place in the schema."""
    value: Any = schema
    try:
        # An $anchor would lead somewhere else, which is not looked for.
        if reference != "#" and not reference.startswith("#/"):
            raise KeyError
        for name in unquote(reference[1:]).split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            value = value[int(name) if isinstance(value, list) else name]
    except (KeyError, IndexError, TypeError, ValueError):
        raise no_part(reference) from None
    return value


def no_part(reference: str) -> UserError:
    return UserError(
        f"schema: $ref {shorten(reference)!r} leads to no part of its $defs, definitions or "
        f"properties: write #/$defs/NAME"
    )


def where(schema: Part, is_wrong: Callable[[Part], bool], ended: float) -> tuple[str, Part]:
    """Return the path of the first part that is wrong without its inner parts, and what remains.

    If parts are wrong only together, or none is found by the time `ended`, it is the whole schema.
    """
    for path, part in parts(schema):
        if time.monotonic() > ended:
            break
        alone = {k: v for k, v in part.items() if k not in (*ONE, *SEVERAL, *NAMED, "$ref")}
        if isinstance(part.get("properties"), dict):
            alone["properties"] = dict.fromkeys(part["properties"], True)
        if alone and is_wrong(alone):
            return path, alone
    return "", schema
