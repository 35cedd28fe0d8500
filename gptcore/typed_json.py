"""Dataclasses to JSON and back, every value checked against its type.

>>> from gptcore.facts import Skill
>>> skill = Skill(n=10, greedy=0.9, sampled=0.8, lowest=0.7)
>>> read_as(Skill, as_json(skill), "scores.json") == skill
True
>>> read_as(Skill, as_json(skill) | {"n": 0.5}, "scores.json")
Traceback (most recent call last):
gptcore.checks.UserError: scores.json: n=0.5 is not of type int
"""

import dataclasses
from dataclasses import MISSING
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gptcore.checks import UserError, brief, check_choice, check_type, shorten
from gptcore.config import ModelConfig, Seq2SeqConfig


def as_json(facts: Any) -> dict[str, Any]:
    """Convert a dataclass to JSON's types; fields that are None or empty are left out."""
    return dataclasses.asdict(facts, dict_factory=filled)


def filled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if value not in (None, {}, (), [])}


def read_as(wanted: Any, value: Any, where: str) -> Any:
    """Convert `value`, read from JSON, to the type `wanted`: the inverse of as_json.

    `wanted` is a scalar type, a Literal, a dataclass, or `X | None`, `tuple[X, ...]`, `tuple[X, X]`
    or `dict[str, X]` of these. A missing key gets its default. Raises UserError naming `where` (a
    file), the key and the value if a key is unknown or missing, or a value has another type.
    """
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return read_dataclass(wanted, value, where)
    kinds = get_args(wanted)
    if get_origin(wanted) is Literal:
        check_choice(f"value of {where}:", value, kinds)
        return value
    if get_origin(wanted) is UnionType and NoneType in kinds:
        return None if value is None else read_as(kinds[0], value, where)
    if get_origin(wanted) is tuple and isinstance(value, list):
        if Ellipsis not in kinds and len(value) != len(kinds):
            raise UserError(f"{where}={brief(value)} has not {len(kinds)} items")
        return tuple(read_as(kinds[0], item, f"{where}, item {i}") for i, item in enumerate(value))
    if get_origin(wanted) is dict and isinstance(value, dict):
        return {k: read_as(kinds[1], item, f"{where}: {shorten(k)}") for k, item in value.items()}
    check_type(where, value, get_origin(wanted) if get_origin(wanted) in (tuple, dict) else wanted)
    return value


def read_dataclass(cls: type, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{where}: {brief(values)} is not an object of names and values")
    if cls is ModelConfig and "source_vocab_size" in values:
        cls = Seq2SeqConfig
    hints, fields = get_type_hints(cls), dataclasses.fields(cls)
    for key in values:
        check_choice(f"key in {where}:", key, hints)
    for each in fields:
        if each.name not in values and each.default is each.default_factory is MISSING:
            raise UserError(f"{where} lacks {each.name}")
    found = {key: read_as(hints[key], v, f"{where}: {key}") for key, v in values.items()}
    try:
        return cls(**found)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def check_format(values: dict[str, Any], known: int, where: str) -> None:
    """Raise UserError unless a file has the format number that this version knows."""
    number = values.get("format")
    if number != known:
        raise UserError(
            f"{where} has format={number!r}, and this version of gptcore knows {known}: use the "
            f"version that wrote it, or make it again"
        )
