"""Token shards: flat, hashed files of token ids, written once, on the disk or at a URL.

train-00000.bin          ids, uint16 (uint32 for a vocabulary over 65,536)
train-00000.starts.npy   the index at which each document begins
train-00000.unlearned.npy  (n, 2): where what is not learned begins and ends, if there is any
val-00000.bin ...        the same for the held-out documents
tokenizer/               the tokenizer of the shards
manifest.json            counts, and the sha256 of every file and of itself

>>> shards = prepare(corpus, Path("runs/shards"), vocab_size=2048)   # doctest: +SKIP
>>> shard = shards.split("train")[0]                                 # doctest: +SKIP
>>> shard[: shard.starts[1]]  # the first document's                 # doctest: +SKIP
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, files_in, locked, new_folder, read_sealed, sealed
from gptcore.system.wording import counted
from gptcore.text.tokenizer import Tokenizer
from gptcore.typed_json import check_format
from training.data.corpus import (
    Corpus,
    document_number,
    document_text,
    learned_mask,
    tokenizer_with_system,
)
from training.data.shards.remote import MANIFEST, RemoteFolder
from training.data.shards.shard import Shard, ShardWriter
from training.data.shards.tokenising import Tokens, tokenise
from training.data.survey import Survey, Surveyor, survey
from training.formats.found import Document
from training.machine.progress import progress
from training.run.facts import FEW_HELD_OUT

FORMAT = 1  # format number in the manifest; part of the key of a cache
CACHE = "cache"  # folder in the run directory for the shards in use from a URL
SPLITS = ("train", "val")
COUNTS = ("n_documents", "n_bytes", "n_chats")
TOKENIZER_BYTES = 20_000_000  # the tokenizer is trained on a sample of a larger corpus


@dataclass(frozen=True)
class Shards:
    """A folder of shards; hashes are verified on opening, or when a file is fetched from a URL."""

    path: Path
    tokenizer: Tokenizer
    manifest: dict[str, Any]
    remote: RemoteFolder | None = None

    def split(self, name: str) -> list[Shard]:
        """Return the shards of the split "train" or "val"."""
        dtype, sizes = self.manifest["dtype"], self.manifest["bytes"]
        return [
            Shard(
                shard,
                dtype,
                sizes[f"{shard}.bin"] // np.dtype(dtype).itemsize,
                self.locate,
                f"{shard}.unlearned.npy" in sizes,
            )
            for shard in self.manifest["splits"][name]["shards"]
        ]

    def locate(self, name: str) -> Path:
        return self.remote.locate(name) if self.remote else self.path / name

    def hold(self, names: list[str]) -> None:
        """Keep only these shards of a URL on the disk; see Batches.near."""
        if self.remote:
            self.remote.hold([f"{name}.bin" for name in names])

    @property
    def location(self) -> str:
        """The URL or folder to give to open_shards."""
        return self.remote.url if self.remote else str(self.path.resolve())

    @property
    def is_chat(self) -> bool:
        """Whether the corpus contains conversations."""
        return self.manifest["n_chats"] > 0


def prepare(
    corpus: Corpus,
    folder: Path,
    vocab_size: int,
    tokenizer: Tokenizer | None = None,
    held_out: float | None = None,
    found: Survey | None = None,
) -> Shards:
    """Tokenise a corpus into folder/KEY, or reuse it; KEY is a hash of all of the input.

    Without a tokenizer, one of vocab_size is trained on the corpus. The shards' own begins chats
    without a system message with the one that nearly all chats have. `held_out`: the share of
    documents held out for validation; the default depends on the size of the corpus. `found`: its
    survey, if it has been read before. Raises UserError if the corpus is too short.
    """
    found = found or survey(corpus, held_out)
    check_length(found)
    source = tokenizer.sha256 if tokenizer else vocab_size
    parts = [FORMAT, found.sha256, found.validation_limit, source, found.usual_system]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    path = folder / key
    with suppress(UserError):
        return load_shards(path)
    with locked(folder / f"{key}.lock"):  # another process may be tokenising the same
        return sound(path) or write_new(corpus, found, path, tokenizer, vocab_size)


def check_length(found: Survey) -> None:
    """Raise UserError if a corpus is too short to hold out a part of it."""
    n_different = found.n_documents - found.n_equal
    if n_different < 2:
        raise UserError(
            f"the text is too short: {counted(found.n_bytes, 'byte')} in "
            f"{counted(n_different, 'document')}; at least 2 that differ are needed, as "
            f"one is set aside to measure on; a plain text is cut into documents of 512 characters "
            f"or more"
        )


def sound(path: Path) -> Shards | None:
    """Open a folder of shards; None if there is none or, after a message, if it is damaged."""
    if not path.exists():
        return None
    try:
        return load_shards(path)
    except UserError as error:
        print(f"{error}; writing them again")
        return None


def write_new(
    corpus: Corpus, found: Survey, path: Path, tokenizer: Tokenizer | None, vocab_size: int
) -> Shards:
    if tokenizer is None:
        print(f"training a tokenizer of {vocab_size:,} tokens on {found.n_bytes:,} bytes")
        tokenizer = Tokenizer.train(sample_texts(corpus, found), vocab_size)
        if tokenizer.vocab_size < vocab_size:
            print(f"the text is short: its tokenizer has {tokenizer.vocab_size:,} tokens")
    print(f"tokenising {counted(found.n_documents, 'document')} into {path}")
    with new_folder(path) as temporary:
        tokenizer = tokenizer_with_system(tokenizer, found.usual_system)
        tokenizer.save(temporary / "tokenizer")
        write_shards(corpus, found, tokenizer, temporary)
    return load_shards(path)


def load_shards(path: Path) -> Shards:
    """Verify and open a folder of shards. Raises UserError if it is damaged."""
    try:
        manifest = read_sealed(path / MANIFEST)
        check_format(manifest, FORMAT, str(path / MANIFEST))
        for name, expected in manifest["sha256"].items():
            if file_sha256(path / name) != expected:
                raise UserError(f"{path / name} is damaged")
    except FileNotFoundError as error:
        raise UserError(f"the token shards in {path} are missing ({error.filename})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the token shards in {path} are damaged ({error})") from None
    return Shards(path, Tokenizer.load(path / "tokenizer"), manifest)


def is_url(location: str | Path) -> bool:
    return "://" in str(location)


def is_finished(location: str | Path) -> bool:
    """Return whether the location itself holds shards, rather than folders of shards."""
    return is_url(location) or (Path(location) / MANIFEST).is_file()


def open_shards(location: str, cache: Path) -> Shards:
    """Open a folder of shards, or shards at a URL, a few of whose files at a time are in `cache`.

    From a URL, everything but the training ids is fetched at once. Raises UserError if the
    shards are damaged or cannot be fetched.
    """
    if not is_url(location):
        return load_shards(Path(location))
    remote = RemoteFolder(location, cache)
    manifest = remote.read_manifest()
    try:
        check_manifest(manifest)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{location}/{MANIFEST} does not describe token shards as `python -m training shards` "
            f"writes them now ({type(error).__name__}: {error})"
        ) from None
    later = {f"{shard}.bin" for shard in manifest["splits"]["train"]["shards"]}
    n_bytes = sum(manifest["bytes"][name] for name in later)
    shards = counted(len(later), "shard")
    print(f"{shards} of {n_bytes:,} bytes at {location}; a few at a time are in {cache}")
    for name in progress(sorted(manifest["sha256"].keys() - later), "fetching", unit=" files"):
        remote.locate(name)
    return Shards(cache, Tokenizer.load(cache / "tokenizer"), manifest, remote)


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise KeyError or TypeError if the manifest lacks a value that is needed later."""
    np.dtype(manifest["dtype"])
    for name in (*COUNTS, "corpus_sha256"):
        manifest[name]
    for split in SPLITS:
        for shard in manifest["splits"][split]["shards"]:
            manifest["sha256"][f"{shard}.starts.npy"], manifest["bytes"][f"{shard}.bin"] + 0


def sample_texts(corpus: Corpus, found: Survey) -> Iterator[str]:
    """Yield the texts that train the tokenizer; held-out documents are not among them."""
    every = found.n_bytes // TOKENIZER_BYTES + 1
    for document in progress(corpus(), "sampling", found.n_documents, " documents"):
        if document_number(document) % every == 0 and not found.is_validation(document):
            yield document_text(document)


def write_shards(corpus: Corpus, found: Survey, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the shards of a corpus. Raises UserError if it is no longer the surveyed one."""
    documents = progress(corpus(), "tokenising", found.n_documents, " documents")
    splits, surveyor = write_splits(documents, tokenizer, found.validation_limit, folder)
    if surveyor.digest.hexdigest() != found.sha256:
        raise UserError("the texts changed while they were read: run the command again")
    manifest = manifest_of(tokenizer, splits, dict(sorted(files_in(folder).items())))
    manifest |= {name: getattr(found, name) for name in COUNTS} | {"corpus_sha256": found.sha256}
    (folder / MANIFEST).write_text(sealed(manifest), encoding="utf-8")


def write_splits(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    limit: int,
    folder: Path,
    only: int | None = None,
) -> tuple[dict[str, Any], Surveyor]:
    """Write the shards of both splits; return what each holds, and the counts of the documents.

    `limit`: documents with a lower document_number are held out. Where these are too few to measure
    on, no figure of them is shown or chooses anything, and they are learned, too. `only`: see
    ShardWriter; nobody knows how few all pieces hold out.
    """
    writers = {split: ShardWriter(folder, split, only) for split in SPLITS}
    surveyor, held_out, n_held_out = Surveyor(), list[Tokens](), 0
    for made in tokenise(documents, tokenizer, dtype_of(tokenizer)):
        surveyor.add(made.document)
        is_held_out = surveyor.numbers[-1] < limit
        writers["val" if is_held_out else "train"].add(made.ids, made.unlearned)
        if is_held_out and n_held_out < FEW_HELD_OUT:
            held_out.append(made)
            n_held_out += learned_mask(made.ids, made.unlearned, tokenizer).sum()
    if only is None and n_held_out < FEW_HELD_OUT:
        for made in held_out:
            writers["train"].add(made.ids, made.unlearned)
    return {split: writer.finish() for split, writer in writers.items()}, surveyor


def manifest_of(
    tokenizer: Tokenizer, splits: dict[str, Any], files: dict[str, Path]
) -> dict[str, Any]:
    """Return a manifest without the COUNTS and the hash of the corpus."""
    return {
        "format": FORMAT,
        "dtype": dtype_of(tokenizer),
        "splits": splits,
        "bytes": {name: path.stat().st_size for name, path in files.items()},
        "sha256": {name: file_sha256(path) for name, path in files.items()},
    }


def dtype_of(tokenizer: Tokenizer) -> str:
    return "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
