"""Reads a GGUF file (github.com/ggml-org/ggml, docs/gguf.md): its metadata, and its tensors.

    >>> file = read_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))       # doctest: +SKIP
    >>> file.tensor("output_norm.weight").shape                         # doctest: +SKIP
    (576,)

Every length in the file is compared with what is left of it before anything is read.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from gptcore.checks import UserError

VERSIONS = (2, 3)
ALIGNMENT = 32  # of the tensors, unless the metadata name another
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # by GGUF's numbers of types
STRING, ARRAY = 8, 9
MOST_DIMENSIONS = 4
LONGEST_NAME = 63  # of a tensor; ggml refuses longer ones


class Place(NamedTuple):
    """Where a tensor's bytes are; the shape has the fastest dimension last, as numpy's."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    n_bytes: int


class Info(NamedTuple):
    """What the header says of a tensor; the offset counts from the end of the header."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class GGUF:
    path: Path
    metadata: dict[str, Any]
    places: dict[str, Place]

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor in fp32; raises UserError if the gguf package cannot unpack it."""
        shape, kind, start, n_bytes = self.places[name]
        data = np.memmap(self.path, np.uint8, "r", start, (n_bytes,))
        try:
            values = dequantize(data.reshape(*shape[:-1], -1), kind)
        except NotImplementedError:
            raise UserError(
                f"{self.path}: the quantisation {kind.name} of {name} is not supported"
            ) from None
        # fp32 is not unpacked but a part of the file, which must not be written
        return np.require(values.reshape(shape), np.float32, "W")


def read_gguf(path: Path) -> GGUF:
    """Read all but the tensors; raises UserError if it is no GGUF, cut short or inconsistent."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return Reader(path, data).read()
    except UserError:
        raise
    except ValueError as error:  # an empty file, texts that are no UTF-8
        raise UserError(f"{path} is not a sound GGUF file: {error}") from None


class Reader:
    """Reads one value after the other from the bytes of a file."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.at = path, data, 0

    def read(self) -> GGUF:
        if self.data[:4] != b"GGUF":
            raise UserError(f"{self.path} is not a GGUF file")
        self.at = 4
        if (version := self.number("I")) not in VERSIONS:
            raise UserError(
                f"{self.path} is GGUF of version {version}: only {VERSIONS} are supported"
            )
        n_tensors, n_pairs = self.count(least=24), self.count(least=13)
        metadata = {self.text(): self.value(self.number("I")) for _ in range(n_pairs)}
        infos = [self.info() for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise UserError(
                f"{self.path}: general.alignment={alignment!r} is not a positive number"
            )
        return GGUF(self.path, metadata, self.places(infos, alignment))

    def places(self, infos: list[Info], alignment: int) -> dict[str, Place]:
        """Return where the tensors are, which must follow each other up to the end of the file."""
        start = end = -(-self.at // alignment) * alignment
        places = {}
        for info in infos:
            place = places[info.name] = self.place(start, info)
            if place.start != end:
                raise UserError(
                    f"{self.path} is damaged: {info.name!r} begins at byte {place.start:,}, and "
                    f"not at {end:,}, where the tensor before it ends"
                )
            end += -(-place.n_bytes // alignment) * alignment
        if len(places) < len(infos):
            raise UserError(f"{self.path} is damaged: it names a tensor twice")
        if end < len(self.data):
            raise UserError(f"{self.path} is damaged: it goes on after the last of its tensors")
        return places

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise UserError(f"{self.path} is cut short, or damaged: it ends within its header")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form: str) -> Any:
        form = f"<{form}"
        value = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        # 1e-05 and not 9.999999747378752e-06: the shortest number that fp32 keeps as this one
        return float(str(np.float32(value))) if form == "<f" else value

    def count(self, least: int) -> int:
        """Read a number of things that take `least` bytes each."""
        n = self.number("Q")
        if n * least > len(self.data) - self.at:
            raise UserError(
                f"{self.path} is cut short, or damaged: it states {n:,} entries, but has too few "
                f"bytes for them"
            )
        return n

    def text(self) -> str:
        return self.take(self.count(least=1)).decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(self.scalar(kind))
        if (item := self.number("I")) == STRING:
            return [self.text() for _ in range(self.count(least=8))]
        form = self.scalar(item)
        n = self.count(least=(size := struct.calcsize(f"<{form}")))
        return list(struct.unpack(f"<{n}{form}", self.take(n * size)))

    def scalar(self, kind: int) -> str:
        if kind not in SCALARS:
            raise UserError(f"{self.path} is damaged: metadata cannot have the type {kind}")
        return SCALARS[kind]

    def info(self) -> Info:
        if len(name := self.text()) > LONGEST_NAME:
            raise UserError(
                f"{self.path} is damaged: a tensor's name has {len(name):,} characters, and "
                f"{LONGEST_NAME} are the most"
            )
        n = self.number("I")
        if not (1 <= n <= MOST_DIMENSIONS):
            raise UserError(f"{self.path} is damaged: {name!r} has {n} dimensions")
        shape = tuple(self.number("Q") for _ in range(n))[::-1]
        if 0 in shape:
            raise UserError(f"{self.path} is damaged: {name!r} is empty")
        return Info(name, shape, self.number("I"), self.number("Q"))

    def place(self, start: int, info: Info) -> Place:
        name, shape, kind, offset = info
        try:
            known = GGMLQuantizationType(kind)
            n_values, n_bytes = GGML_QUANT_SIZES[known]
        except (ValueError, KeyError):
            raise UserError(f"{self.path}: {name!r} has the unknown quantisation {kind}") from None
        if shape[-1] % n_values:
            raise UserError(
                f"{self.path}: the rows of {name!r} are not whole blocks of {known.name}"
            )
        size = math.prod(shape) // n_values * n_bytes
        if start + offset + size > len(self.data):
            raise UserError(f"{self.path} is cut short: {name!r} ends after the end of the file")
        return Place(shape, known, start + offset, size)
