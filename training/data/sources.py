"""Where a run's text comes from: files, the project's own dialogues, or finished token shards.

>>> corpus, source = open_corpus([], seed=1)
>>> source
'100,000 made-up dialogues'
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gptcore.checks import UserError
from gptcore.text.encodings import NAMES, compact, named_encoding, usage
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Corpus, Document, find_files, read_documents, texts_of
from training.data.leaks import without_leaks
from training.data.shards import CACHE, Shards, is_url, open_shards
from training.dialogues.generator import dialogues
from training.run.directory import Run
from training.run.facts import RunData

OWN = "own"  # a tokenizer trained on the text
N_DIALOGUES = 100_000  # of the project's own corpus
DIALOGUES = "dialogues"  # the name of this corpus, which has no end; N_DIALOGUES of it are one pass
OWN_SOURCE = f"{N_DIALOGUES:,} made-up dialogues"


def open_corpus(paths: list[Path], seed: int) -> tuple[Corpus, str]:
    """The documents of the given files, or the project's own dialogues; and a name for them."""
    if not paths:
        return lambda: islice(own_dialogues(seed), N_DIALOGUES), OWN_SOURCE
    files = find_files(paths)
    return lambda: read_documents(files), name_of(files)


def own_dialogues(seed: int | str) -> Iterator[Document]:
    """The project's, without those that the behaviour suite asks. There is no end of them."""
    return without_leaks(dialogues(seed))


def name_of(files: Iterable[Path]) -> str:
    return ", ".join(sorted({file.name for file in files}))


def open_tokenizer(name: str, corpus: Corpus, full_vocabulary: bool) -> Tokenizer | None:
    """A folder's tokenizer, or a named encoding with the ids that the corpus uses; None: own."""
    if name == OWN:
        return None
    if name not in NAMES:
        tokenizer = Tokenizer.load(name)
        if not tokenizer.is_ours:
            raise UserError(
                f"--tokenizer {name} is of a model made elsewhere: it cannot be trained on"
            )
        return tokenizer
    try:
        tokenizer = named_encoding(name)
    except UserError as error:
        raise UserError(f"{error}; or train one: --tokenizer {OWN}") from None
    found = usage((text for document in corpus() for text in texts_of(document)), tokenizer)
    print(
        f"{name}: {found.n_tokens:,} tokens, {found.n_distinct:,} distinct, "
        f"largest id {found.largest_id}"
    )
    return tokenizer if full_vocabulary else compact(tokenizer, found.used)


def shards_folder(location: str | None, default: Path) -> Path:
    """Where shards of a text are kept."""
    if location and is_url(location):
        raise UserError(
            f"--shards {location} with a text: shards are written into a folder; or name no text, "
            f"to train on the shards at that address"
        )
    return Path(location or default)


def finished_shards(location: str, cache: Path, tokenizer: str) -> Shards:
    """Those at a folder or URL. UserError if another tokenizer is wanted than made them."""
    shards = open_shards(location, cache)
    if tokenizer in NAMES or (
        tokenizer != OWN and Tokenizer.load(tokenizer).sha256 != shards.tokenizer.sha256
    ):
        raise UserError(
            f"the shards at {location} were made with another tokenizer than {tokenizer}: prepare "
            f"the text with --tokenizer {tokenizer}"
        )
    return shards


def facts_of(shards: Shards, source: str) -> RunData:
    """What a run notes about the text that it is trained on."""
    counts = {key: shards.manifest[key] for key in ("corpus_sha256", "n_documents", "n_bytes")}
    known = {DIALOGUES: 1.0} if source == OWN_SOURCE else {}
    return RunData(source, shards.is_chat, shards=shards.location, datasets=known, **counts)


def shards_of(run: Run) -> Shards:
    """The shards that a run was trained on."""
    if run.data.shards is None:
        raise UserError(f"{run.path} is a translation: python -m training translate --resume")
    shards = open_shards(run.data.shards, run.path / CACHE)
    if run.data.corpus_sha256 not in (None, shards.manifest.get("corpus_sha256")):
        raise UserError(f"the shards at {shards.location} are no longer those of {run.path}")
    return shards
