"""Checks what an ONNX file would do before ONNX Runtime does any of it.

A graph that somebody made may hold a loop that never ends, and nothing interrupts it. Our graphs
are straight: each operator runs once. So a file with a loop or a branch (an operator that holds a
graph) or with functions of its own (each may call the next one twice) is refused.

The file is read as what it is, nested protobuf messages
(https://protobuf.dev/programming-guides/encoding), with the numbers of onnx.proto. Weights are
stepped over.

>>> check_straight("models/nano/onnx/model.onnx")                    # doctest: +SKIP
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from gptcore.checks import UserError

MODEL_GRAPH, MODEL_TRAINING, MODEL_FUNCTIONS = 7, 20, 25
GRAPH_NODE, NODE_ATTRIBUTE = 1, 5
ATTRIBUTE_GRAPHS = (6, 11)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # kinds of fields

Span = tuple[int, int]  # where a message begins, and where it ends


def check_straight(path: str | Path) -> None:
    """Raise UserError if an ONNX file is damaged, or does more than run each operator once."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_straight = not any(holds_more(data, field) for field in fields(data, (0, len(data))))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # an empty file cannot be mapped
        raise UserError(f"ONNX Runtime cannot load {path}: it is no complete ONNX file") from None
    if not is_straight:
        raise UserError(
            f"{path} holds a loop, a branch or functions, and might never end: it is not run"
        )


def holds_more(data: mmap.mmap, field: tuple[int, Span]) -> bool:
    """Return whether a field of a model holds a loop, a branch or a function."""
    number, graph = field
    if number != MODEL_GRAPH:
        return number in (MODEL_TRAINING, MODEL_FUNCTIONS)
    return any(
        name in ATTRIBUTE_GRAPHS
        for node in parts(data, graph, GRAPH_NODE)
        for attribute in parts(data, node, NODE_ATTRIBUTE)
        for name, _ in fields(data, attribute)
    )


def parts(data: mmap.mmap, message: Span, wanted: int) -> Iterator[Span]:
    """Yield the messages that are the field `wanted` of a message."""
    return (span for number, span in fields(data, message) if number == wanted)


def fields(data: mmap.mmap, message: Span) -> Iterator[tuple[int, Span]]:
    """Yield the number and place of each field that may be a message; raises ValueError."""
    at, end = message
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            _, at = varint(data, at)
        elif kind == BYTES:
            length, start = varint(data, at)
            at = start + length
            yield (tag & 0xFFFFFFFF) >> 3, (start, at)  # ONNX Runtime ignores further bits
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field of kind {kind}")
    if at != end:
        raise ValueError("a field reaches beyond its message")


def varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the last byte below 128, and where it ends."""
    value = 0
    for i, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    raise ValueError("a number without an end")
