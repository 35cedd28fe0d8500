"""Documents to token shards: flat files of ids, memory-mapped, hashed, made once.

train-00000.bin          ids, uint16 (uint32 for a vocabulary over 65,536)
train-00000.starts.npy   where each document begins
val-00000.bin ...        the same for the held-out documents
tokenizer/               the tokenizer that made them
manifest.json            counts, and the sha256 of every file

>>> shards = prepare(corpus, Path("runs/shards"), vocab_size=2048)   # doctest: +SKIP
>>> ids, starts = shards.split("train")[0]                           # doctest: +SKIP
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.checks import UserError
from gptcore.files import file_sha256, new_folder
from gptcore.tokenizer import Tokenizer
from training.corpus import (
    Corpus,
    Document,
    Survey,
    document_ids,
    document_number,
    document_text,
    survey,
)

FORMAT = 1  # part of the key, so that older shards are made anew
SHARD_TOKENS = 1 << 26
CHUNK_DOCUMENTS = 128  # what one thread tokenises at a time
TOKENIZER_BYTES = 100_000_000  # a larger corpus is sampled to train the tokenizer


@dataclass(frozen=True)
class Shards:
    """A folder of shards whose hashes have been verified."""

    path: Path
    tokenizer: Tokenizer
    manifest: dict[str, Any]

    def split(self, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per shard of "train" or "val": ids (memory-mapped), and starts of documents."""
        return [
            (
                np.memmap(self.path / f"{shard}.bin", dtype=self.manifest["dtype"], mode="r"),
                np.load(self.path / f"{shard}.starts.npy"),
            )
            for shard in self.manifest["splits"][name]["shards"]
        ]

    @property
    def is_chat(self) -> bool:
        """Whether conversations are in it."""
        return self.manifest["n_chats"] > 0


def prepare(
    corpus: Corpus,
    folder: Path,
    vocab_size: int,
    block_size: int,
    tokenizer: Tokenizer | None = None,
) -> Shards:
    """Tokenise a corpus into folder/KEY, or find it there; KEY depends on all of the input.

    Without a tokenizer, one of vocab_size is trained on the corpus.
    """
    found = survey(corpus)
    if found.n_documents < 2 or found.n_bytes <= block_size:
        raise UserError(
            f"the corpus is too short: {found.n_bytes} bytes in {found.n_documents} document(s), "
            f"for blocks of block_size={block_size} tokens; give more text"
        )
    source = tokenizer.sha256 if tokenizer else vocab_size
    key = hashlib.sha256(json.dumps([FORMAT, found.sha256, source]).encode()).hexdigest()[:16]
    path = folder / key
    if path.exists():
        try:
            return load_shards(path)
        except UserError as error:
            print(f"{error}; making it again")
    if tokenizer is None:
        print(f"training a tokenizer of {vocab_size} tokens on {found.n_bytes:,} bytes")
        tokenizer = Tokenizer.train(sample_texts(corpus, found), vocab_size)
        if tokenizer.vocab_size < vocab_size:
            print(f"the text yields {tokenizer.vocab_size} tokens of vocab_size={vocab_size}")
    print(f"tokenising {found.n_documents:,} documents into {path}")
    with new_folder(path) as temporary:
        tokenizer.save(temporary / "tokenizer")
        write_shards(corpus, found, tokenizer, temporary)
    return load_shards(path)


def load_shards(path: Path) -> Shards:
    """Verify and open a folder of shards."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        for name, expected in manifest["sha256"].items():
            if file_sha256(path / name) != expected:
                raise UserError(f"{path / name} is damaged")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the token shards in {path} are not sound ({error})") from None
    return Shards(path, Tokenizer.load(path / "tokenizer"), manifest)


def sample_texts(corpus: Corpus, found: Survey) -> Iterator[str]:
    """Texts for the tokenizer, none of the held-out ones."""
    every = found.n_bytes // TOKENIZER_BYTES + 1
    for document in corpus():
        if document_number(document) % every == 0 and not found.is_validation(document):
            yield document_text(document)


def write_shards(corpus: Corpus, found: Survey, tokenizer: Tokenizer, folder: Path) -> None:
    dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    writers = {split: ShardWriter(folder, split, dtype) for split in ("train", "val")}
    for document, ids in tokenise(corpus(), tokenizer):
        writers["val" if found.is_validation(document) else "train"].add(ids)
    splits = {split: writer.finish() for split, writer in writers.items()}
    if not splits["train"]["n_tokens"]:
        raise UserError("the corpus is one text, again and again: give some that differs")
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    manifest = {
        "dtype": dtype,
        "n_documents": found.n_documents,
        "n_bytes": found.n_bytes,
        "n_chats": found.n_chats,
        "corpus_sha256": found.sha256,
        "splits": splits,
        "sha256": {p.relative_to(folder).as_posix(): file_sha256(p) for p in files},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")


def tokenise(
    documents: Iterable[Document], tokenizer: Tokenizer
) -> Iterator[tuple[Document, list[int]]]:
    """Documents with their ids, in order, on all cores (tiktoken runs without Python's lock)."""
    n_threads = os.cpu_count() or 1

    def encode(chunk: list[Document]) -> list[list[int]]:
        return [document_ids(document, tokenizer) for document in chunk]

    with ThreadPoolExecutor(n_threads) as pool:
        for chunks in groups(groups(documents, CHUNK_DOCUMENTS), 4 * n_threads):
            for chunk, encoded in zip(chunks, pool.map(encode, chunks)):
                yield from zip(chunk, encoded)


def groups(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items; the last one may be shorter."""
    group = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


class ShardWriter:
    """Writes the documents of one split; no document lies in two shards."""

    def __init__(self, folder: Path, split: str, dtype: str):
        self.folder, self.split, self.dtype = folder, split, dtype
        self.shards: list[str] = []
        self.n_tokens = 0
        self.open_shard()

    def open_shard(self) -> None:
        self.shards.append(f"{self.split}-{len(self.shards):05d}")
        self.file = open(self.folder / f"{self.shards[-1]}.bin", "wb")
        self.starts: list[int] = []
        self.length = 0

    def close_shard(self) -> None:
        self.file.close()
        np.save(self.folder / f"{self.shards[-1]}.starts.npy", np.array(self.starts, np.int64))
        self.n_tokens += self.length

    def add(self, ids: list[int]) -> None:
        if self.length and self.length + len(ids) > SHARD_TOKENS:
            self.close_shard()
            self.open_shard()
        self.starts.append(self.length)
        self.file.write(np.array(ids, self.dtype).tobytes())
        self.length += len(ids)

    def finish(self) -> dict[str, Any]:
        self.close_shard()
        return {"shards": self.shards, "n_tokens": self.n_tokens}
