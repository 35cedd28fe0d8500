"""Token shards in parts: each part by itself, on any machine, and then one manifest for all.

    >>> for part in range(1, 65):  # on 64 machines                      # doctest: +SKIP
    ...     write_part(files, Asked(), tokenizer, Path("made"), Part(part, 64))
    >>> shards = join_parts(Path("made"))                                # doctest: +SKIP

The files are taken in units: large files, and small ones together. The documents of a unit are
taken in pieces, and a piece becomes one shard of each split. Units and pieces depend on the files
alone, so any number of parts makes the same shards. Parts that share a unit read all of it, and
tokenise different pieces of it.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, locked, new_folder, read_sealed, sealed, write_whole
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import check_learnable, cut_for, document_text
from training.data.shards.folder import COUNTS, SPLITS, Shards, manifest_of, write_splits
from training.data.shards.remote import MANIFEST
from training.data.survey import validation_limit
from training.formats.found import Asked, Document, Item, Skip
from training.formats.packed import unpacked_size
from training.formats.places import File
from training.formats.reading import read_files
from training.machine.progress import progress

UNIT_BYTES = 1 << 26  # stored bytes of files that are read together
PIECE_BYTES = 1 << 25  # bytes of text in a shard
MAX_PIECES = 100_000  # of a unit
ENDS = (".bin", ".starts.npy", ".unlearned.npy")


@dataclass(frozen=True)
class Part:
    """Part number `number` of `n`, from 1.

    >>> Part.parse("3/64")
    Part(number=3, n=64)
    """

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--part {text}: write it as 3/64, the third of 64 parts")
        return cls(int(match[1]), int(match[2]))

    @property
    def name(self) -> str:
        return f"part-{self.number}-of-{self.n}.json"

    def shares(self, unit: int, n_units: int) -> bool:
        """Return whether it makes a piece of this unit."""
        return self.number - 1 == unit % self.n or (self.number - 1) % n_units == unit

    def makes(self, unit: int, piece: int, n_units: int) -> bool:
        """Return whether it makes this piece; one part does."""
        first = unit % self.n
        n_sharing = len(range(first, self.n, n_units))
        return self.number - 1 == first + piece % n_sharing * n_units


def write_part(
    files: list[File], asked: Asked, tokenizer: Tokenizer, folder: Path, part: Part
) -> Path:
    """Write a part's shards into `folder`, and last of all its list; return the list's path."""
    asked = cut_for(files, asked)
    limit = validation_limit(sum(map(unpacked_size, files)))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "tokenizer.lock"):
        if not (folder / "tokenizer").exists():
            with new_folder(folder / "tokenizer") as temporary:
                tokenizer.save(temporary)
    if Tokenizer.load(folder / "tokenizer").sha256 != tokenizer.sha256:
        raise UserError(
            f"{folder / 'tokenizer'} is another tokenizer than the one named, so other parts have "
            f"other ids: name the folder's own with --tokenizer, or another folder with --shards"
        )
    all_units, pieces = units(files), []
    for unit, together in enumerate(all_units):
        if not part.shares(unit, len(all_units)):
            continue
        skipped = Counter[str]()
        documents = documents_of(together, asked, skipped)
        bar = progress(documents, f"unit {unit + 1} of {len(all_units)}", unit=" documents")
        for piece, own in pieces_of(bar, unit, part, len(all_units)):
            number = unit * MAX_PIECES + piece
            pieces.append(write_piece(own, number, limit, tokenizer, folder))
        for reason, n in skipped.most_common():
            print(f"unit {unit + 1}: skipped {n:,}: {reason}")
    names = [f"{shard}{end}" for piece in pieces for shard in piece["shards"] for end in ENDS]
    paths = [folder / name for name in names if (folder / name).exists()]
    listed = {
        "plan": plan_of(files, asked, tokenizer, limit),
        "tokenizer": tokenizer.sha256,
        "pieces": pieces,
        "bytes": {path.name: path.stat().st_size for path in paths},
        "sha256": {path.name: file_sha256(path) for path in paths},
    }
    write_whole(folder / part.name, sealed(listed))
    return folder / part.name


def documents_of(files: list[File], asked: Asked, skipped: Counter[str]) -> Iterator[Document]:
    """Yield the documents of files, and count what is skipped by its reason."""
    for _, found in read_files(files, asked):
        for item in found:
            if isinstance(item, Item):
                yield item.document
            elif isinstance(item, Skip):
                skipped[item.reason] += 1


def units(files: Iterable[File]) -> list[list[File]]:
    """Return the files in groups of at least UNIT_BYTES, in order."""
    groups: list[list[File]] = [[]]
    size = 0
    for file in files:
        if size >= UNIT_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def pieces_of(
    documents: Iterable[Document], unit: int, part: Part, n_units: int
) -> Iterator[tuple[int, list[Document]]]:
    """Yield the number and the documents of the pieces that the part makes."""
    piece, size, own = 0, 0, list[Document]()
    for document in documents:
        if size >= PIECE_BYTES:
            if own:
                yield piece, own
            piece, size, own = piece + 1, 0, []
        size += len(document_text(document).encode("utf-8"))
        if part.makes(unit, piece, n_units):
            own.append(document)
    if own:
        yield piece, own


def write_piece(
    documents: list[Document], number: int, limit: int, tokenizer: Tokenizer, folder: Path
) -> dict[str, Any]:
    """Write the shards of a piece; return their names with tokens, and what was counted."""
    splits, surveyor = write_splits(documents, tokenizer, limit, folder, number)
    found = surveyor.survey()
    if found.n_chats:
        check_learnable(tokenizer, folder / "tokenizer")
    return {
        "number": number,
        "shards": {
            name: split["n_tokens"] for split in splits.values() for name in split["shards"]
        },
        **{name: getattr(found, name) for name in COUNTS},
        "sha256": found.sha256,
    }


def plan_of(files: list[File], asked: Asked, tokenizer: Tokenizer, limit: int) -> str:
    """Return a hash of all that determines the shards; it is equal for all parts."""
    sizes = [(file.own_name, file.size) for file in files]
    parts = [sizes, astuple(asked), tokenizer.sha256, limit, UNIT_BYTES, PIECE_BYTES]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def join_parts(folder: Path) -> Shards:
    """Write the manifest of all parts in `folder`. Raises UserError if one is missing.

    The shards are not read: they may be a corpus of any size, and a training verifies them.
    """
    found = {path: read_part(path) for path in sorted(folder.glob("part-*-of-*.json"))}
    if not found:
        raise UserError(f"{folder} holds no parts: make them with --part 1/N to N/N")
    if len({listed["plan"] for listed in found.values()}) > 1:
        raise UserError(f"the parts in {folder} are of different texts, options or tokenizers")
    n = max(int(path.stem.rpartition("-")[2]) for path in found)
    missing = [k for k in range(1, n + 1) if folder / Part(k, n).name not in found]
    if missing or len(found) > n:
        which = ", ".join(map(str, missing)) or "those of another number of parts"
        raise UserError(f"{folder} lacks part {which} of {n}: make it with --part, or remove it")
    pieces = sorted(
        (piece for listed in found.values() for piece in listed["pieces"]),
        key=lambda piece: piece["number"],
    )
    tokenizer = Tokenizer.load(folder / "tokenizer")
    if any(listed["tokenizer"] != tokenizer.sha256 for listed in found.values()):
        raise UserError(
            f"{folder / 'tokenizer'} is not the tokenizer of the parts: put theirs back, or make "
            f"the parts again in another folder"
        )
    splits = {split: split_of(split, pieces) for split in SPLITS}
    for split, of in splits.items():
        if not of["n_tokens"]:
            raise UserError(f"{folder} has no document for the split {split}: give more texts")
    own = sorted((folder / "tokenizer").iterdir())
    files = {f"tokenizer/{path.name}": path for path in own}
    manifest = manifest_of(tokenizer, splits, files)
    manifest |= {name: sum(piece[name] for piece in pieces) for name in COUNTS}
    hashes = "".join(piece["sha256"] for piece in pieces)
    manifest["corpus_sha256"] = hashlib.sha256(hashes.encode()).hexdigest()
    for listed in found.values():
        manifest["bytes"] |= listed["bytes"]
        manifest["sha256"] |= listed["sha256"]
    write_whole(folder / MANIFEST, sealed(manifest))
    return Shards(folder, tokenizer, manifest)


def split_of(split: str, pieces: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {
        name: n_tokens
        for piece in pieces
        for name, n_tokens in piece["shards"].items()
        if name.startswith(f"{split}-")
    }
    return {"shards": list(counts), "n_tokens": sum(counts.values())}


def read_part(path: Path) -> dict[str, Any]:
    try:
        listed = read_sealed(path)
        listed["plan"], listed["tokenizer"], listed["pieces"], listed["bytes"], listed["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): make this part again") from None
    return listed
