"""Checks of settings, and the one error that a user sees without a traceback.

>>> check_choice("preset", "smal", ["nano", "small"])
Traceback (most recent call last):
gptcore.checks.UserError: unknown preset 'smal': did you mean 'small'? known are nano, small
"""

import dataclasses
import difflib
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
MANY = 20  # known names; more are not listed beside the nearest one
SHORT = 4  # letters: a word of no more is a near one if half of them are alike


class UserError(ValueError):
    """A user's mistake; the message names the field, the value and the remedy."""


class TooLong(UserError):
    """A prompt that does not fit the context."""


class Busy(UserError):
    """More waits than can be answered soon."""


def build(cls: type[T], values: dict[str, Any]) -> T:
    """Build an instance of the dataclass `cls` from a dict; raises UserError for unknown keys."""
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in values:
        check_choice("setting", key, known)
    return cls(**values)


def check_choice(field: str, value: object, known: Collection[str]) -> None:
    """Raise UserError unless the value is among the known names; suggest the nearest one."""
    if value not in known:
        hint = nearest(str(value), known)
        listed = "" if hint and len(known) > MANY else f"known are {', '.join(known)}"
        raise UserError(f"unknown {field} {brief(value)}: {' '.join(filter(None, (hint, listed)))}")


def closest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that is most like this one, or None.

    >>> closest("wb", ["wa", "nano"]), closest("LENNA", ["Lena"]), closest("wb", ["nano"])
    ('wa', 'Lena', None)
    """
    folded = {name.casefold(): name for name in known}
    cutoff = 0.5 if len(word) <= SHORT else 0.6  # share of the letters that are alike
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def nearest(word: str, known: Collection[str]) -> str:
    """Return a question after the known word that is most like this one, or ""."""
    near = closest(word, known)
    return f"did you mean '{near}'?" if near else ""


def nearest_beside(path: Path, *rooms: str) -> str:
    """Return "did you mean ...?" for a path that does not exist, or "" if nothing is like it.

    It may be in one of the folders `rooms`. Beside the path, what has the same ending is preferred,
    as another kind of file may be of no use.
    """
    if path.exists():
        return ""
    if found := [room / path for room in map(Path, rooms) if (room / path).exists()]:
        return f"did you mean '{found[0]}'?"
    others = {other.name: other for other in path.parent.glob("*")}  # none without such a folder
    alike = {o.stem: name for name, o in others.items() if o.suffix.lower() == path.suffix.lower()}
    stem = closest(path.stem, alike)
    near = alike[stem] if stem else closest(path.name, others)
    return f"did you mean '{path.with_name(near)}'?" if near else ""


def check_range(config: Any, name: str, low: float, high: float) -> None:
    """Raise UserError unless a field is a number of low..high; NaN is refused too."""
    check_within(name, getattr(config, name), low, high)


def check_within(name: str, value: float, low: float, high: float) -> None:
    """Raise UserError unless the number lies in low..high; NaN is refused too."""
    if not (low <= value <= high):
        limits = [n if isinstance(n, int) else f"{n:g}" for n in (low, high)]
        raise UserError(f"{name}={brief(value)} is out of range: choose {limits[0]} to {limits[1]}")


def check_whole(name: str, value: object, low: int, high: float = math.inf) -> None:
    """Raise UserError unless the value is an int of low..high; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not (low <= value <= high):
        within = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
        raise UserError(f"{name}={brief(value)} must be a whole number {within}")


def check_types(config: Any) -> None:
    """Raise UserError if a field's value does not have the type that the dataclass declares."""
    for name, wanted in get_type_hints(type(config)).items():
        check_type(name, getattr(config, name), wanted)


def check_type(field: str, value: object, wanted: Any) -> None:
    """Raise UserError if a value has another scalar type, or is not among a Literal's choices.

    An int is accepted as a float. A bool is never accepted as a number."""
    if get_origin(wanted) is Literal:
        check_choice(field, value, get_args(wanted))
        return
    accepted = (int, float) if wanted is float else wanted
    if not isinstance(value, accepted) or (isinstance(value, bool) and wanted in (int, float)):
        kind = getattr(wanted, "__name__", wanted)
        raise UserError(f"{field}={brief(value)} is not of type {kind}")


def brief(value: object) -> str:
    """Return a value as Python writes it, for a message of one line."""
    return shorten(repr(value))


def shorten(text: str, length: int = 60) -> str:
    """Cut a text to `length` characters, for a message of one line."""
    return text if len(text) <= length else f"{text[:length]}..."


def within(value: Any) -> list[Any]:
    """Return the values directly within a JSON value."""
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []


def is_deeper(value: Any, most: int) -> bool:
    """Whether a JSON value has others within it on more than `most` levels.

    >>> is_deeper([[1]], 2), is_deeper([[1]], 1)
    (False, True)
    """
    level, depth = [value], 0
    while level and depth <= most:
        level, depth = [inner for one in level for inner in within(one)], depth + 1
    return bool(level)
