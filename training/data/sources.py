"""Sources of a run's text: files, generated dialogues, or finished token shards.

>>> corpus, source = open_corpus([], seed=1)
>>> source
'100,000 made-up dialogues'
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.checks import UserError
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Corpus, Document, read_documents, texts_of
from training.data.encodings import NAMES, compact, count_ids, named_encoding
from training.data.leaks import without_leaks
from training.data.shards.folder import CACHE, Shards, is_finished, is_url, open_shards
from training.dialogues.generator import dialogues
from training.formats.found import Asked
from training.formats.places import File
from training.run.directory import Run
from training.run.facts import RunData

OWN = "own"  # a tokenizer trained on the text
N_DIALOGUES = 100_000  # generated dialogues in one pass
NAMED = 20  # files; a run's facts and a model's card begin with their names
SHARDS = "shards"  # the folder beside runs for the shards of their texts
COUNTED_ROW = 1024  # tokens of the rows in which those with a loss are counted
DIALOGUES = "dialogues"  # name of the generated corpus, which is endless


def open_corpus(files: list[File], seed: int, asked: Asked = Asked()) -> tuple[Corpus, str]:
    """Return the corpus of the given files, or of generated dialogues, and a name for it."""
    if not files:
        source = f"{N_DIALOGUES:,} made-up dialogues"
        own = own_dialogues(seed)
        return lambda: islice(own(), N_DIALOGUES), source
    return lambda: read_documents(files, asked), name_of(files)


def own_dialogues(seed: int | str) -> Callable[[], Iterator[Document]]:
    """Return endless generated dialogues without the behaviour suite's questions.

    Each is made once and kept for the next pass, packed: making it takes ten times as long as
    packing it, and a hundred thousand as objects take 230 MB.
    """
    made: Iterator[Document] = without_leaks(dialogues(seed))
    kept: list[bytes] = []

    def documents() -> Iterator[Document]:
        for i in count():
            if i == len(kept):
                kept.append(zlib.compress(json.dumps(next(made)).encode(), level=1))
            yield json.loads(zlib.decompress(kept[i]))

    return documents


def name_of(files: Iterable[File]) -> str:
    names = sorted({file.own_name for file in files})
    if len(names) > NAMED:
        names[NAMED:] = [f"{len(names) - NAMED:,} more files"]
    return ", ".join(names)


def open_tokenizer(name: str, corpus: Corpus, full_vocabulary: bool) -> Tokenizer | None:
    """Open a folder's tokenizer or a named encoding, or return None if one is to be trained.

    A named encoding keeps only the ids that the corpus uses, unless `full_vocabulary` is set.
    Raises UserError if the tokenizer cannot be loaded.
    """
    if name == OWN:
        return None
    if name not in NAMES:
        return Tokenizer.load(name)
    try:
        tokenizer = named_encoding(name)
    except UserError as error:
        raise UserError(f"{error}; or train one: --tokenizer {OWN}") from None
    counts = count_ids((text for one in corpus() for text in texts_of(one)), tokenizer)
    used = np.flatnonzero(counts).tolist()
    print(f"{name}: {counts.sum():,} tokens, {len(used):,} distinct, largest id {used[-1]}")
    return tokenizer if full_vocabulary else compact(tokenizer, used)


def folder_tokenizer(folder: str) -> Tokenizer:
    """Open a folder's tokenizer for a new model. Raises UserError if it is of another family."""
    tokenizer = Tokenizer.load(folder)
    if not tokenizer.is_ours:
        raise UserError(
            f"--tokenizer {folder} belongs to an imported model: train that further, with "
            f"--init {folder}"
        )
    return tokenizer


def shards_folder(location: str | None, default: Path) -> Path:
    """Return the folder for the shards of a text. Raises UserError if `location` is a URL."""
    if location and is_url(location):
        raise UserError(
            f"--shards {location}: shards are written into a folder of this machine: name one; to "
            f"train on finished shards at that address, name no text"
        )
    return Path(location or default)


def finished_shards(location: str, cache: Path, tokenizer: str | None) -> Shards:
    """Open shards at a folder or URL. Raises UserError if `tokenizer` is not their tokenizer.

    Of a published one they may keep only the ids that their text uses.
    """
    shards = open_shards(location, cache)
    own, is_theirs = shards.tokenizer, True
    if tokenizer in NAMES:
        named = named_encoding(tokenizer)
        is_theirs = (named.ranks, named.pattern) == (own.ranks, own.pattern)
    elif tokenizer and tokenizer != OWN:
        is_theirs = identity(Tokenizer.load(tokenizer)) == identity(own)
    if not is_theirs:
        raise UserError(
            f"the shards at {location} have another tokenizer than {tokenizer}: prepare the text "
            f"with --tokenizer {tokenizer}"
        )
    return shards


def identity(tokenizer: Tokenizer) -> tuple[Any, ...]:
    """Return all that tells one tokenizer from another, but for its usual system message."""
    it, form = tokenizer, replace(tokenizer.chat, opening_alone="")
    return it.ranks, it.pattern, it.kept, it.special, form, it.added, it.normal_form


def run_data_of(shards: Shards, source: str, datasets: Mapping[str, float] = {}) -> RunData:
    """Return what a run records about its training text.

    `datasets`: the number of passes over each text that is known by name.
    """
    from training.data.rows import Rows  # it imports torch

    held_out_tokens, held_out_bytes = Rows(shards, "val", COUNTED_ROW).learned()
    counts = {key: shards.manifest[key] for key in ("corpus_sha256", "n_documents", "n_bytes")}
    return RunData(
        source,
        shards.is_chat,
        shards=shards.location,
        n_tokens=sum(split["n_tokens"] for split in shards.manifest["splits"].values()),
        held_out_tokens=held_out_tokens,
        held_out_bytes=held_out_bytes,
        datasets=dict(datasets),
        **counts,
    )


def shards_of(run: Run) -> Shards:
    """Open the shards of a run. Raises UserError if they changed, or if it is a translator."""
    if run.data.shards is None:
        raise UserError(f"{run.path} is a translator: use python -m training translate --resume")
    place = run.data.shards
    beside = run.path.parent / SHARDS / Path(place).name  # where they are after a folder was moved
    if not is_finished(place) and is_finished(beside):
        place = str(beside)
    shards = open_shards(place, run.path / CACHE)
    if run.data.corpus_sha256 != shards.manifest["corpus_sha256"]:
        raise UserError(f"the shards at {shards.location} are no longer those of {run.path}")
    return shards
