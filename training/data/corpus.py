"""Documents of files of any kind and size.

    >>> for document in read_documents(find_files(["book.txt"])):        # doctest: +SKIP
    ...     ids = document_ids(document, tokenizer)

A document is a text (str) or a conversation (list of messages). training/formats/ reads them.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from gptcore.checks import UserError
from gptcore.text.chat_template import loss_mask, replies, reply_end, text_opening
from gptcore.text.tokenizer import Tokenizer
from training.formats.found import Asked, Document, Item, Skip
from training.formats.places import File
from training.formats.reading import read_files

Corpus = Callable[[], Iterable[Document]]  # each call starts from the beginning
MOST_ROWS = 5000  # of a table of questions; of more, many ask alike in other words


def read_documents(files: list[File], asked: Asked = Asked()) -> Iterator[Document]:
    """Yield the documents of all files. Raises UserError naming an unreadable file."""
    return (document for document, _ in read_sourced(files, asked))


def read_sourced(files: list[File], asked: Asked = Asked()) -> Iterator[tuple[Document, str]]:
    """Yield documents with their sources: the row's "source", or else the file's name.

    Raises UserError for an unreadable file that the user named, and if there is no document.
    """
    is_empty, first = True, ""
    for file, found in read_files(files, cut_for(files, asked)):
        for item in found:
            if isinstance(item, Item):
                is_empty = False
                yield item.document, item.source or file.own_name
            elif isinstance(item, Skip) and not first:
                first = f"{file.name}{', ' * bool(item.where)}{item.where}: {item.reason}"
    if is_empty:
        raise UserError(f"no document was found: {first or 'the files hold none'}")


def cut_for(files: list[File], asked: Asked) -> Asked:
    """Cut into at least about fifty documents, so that a small text can be split for validation."""
    return replace(asked, size=max(512, min(4096, sum(file.size for file in files) // 50)))


def is_table(n_exchanges: int, n_documents: int) -> bool:
    """Return whether documents are a table of questions, and not a set of chats.

    n_exchanges: how many of them are one question and its answer.
    """
    return n_documents <= MOST_ROWS and 2 * n_exchanges > n_documents


def document_text(document: Document) -> str:
    """Return the text of a document on which a tokenizer is trained."""
    return "\n".join(texts_of(document))


def texts_of(document: Document) -> list[str]:
    """Return the texts that are encoded separately: a text itself, or a conversation's messages."""
    if isinstance(document, str):
        return [document]
    return [message["content"] for message in document]


def document_ids(document: Document, tokenizer: Tokenizer) -> list[int]:
    """Return a document's ids; a text begins as the tokenizer's format says."""
    return ids_and_unlearned(document, tokenizer)[0]


def ids_and_unlearned(
    document: Document, tokenizer: Tokenizer
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return a document's ids, and the spans of them, as (start, stop), that are not learned
    though gptcore.text.chat_template.loss_mask shows them: replies of weight 0, and in the format
    of a model made elsewhere everything but the replies."""
    if isinstance(document, str):
        opening = text_opening(tokenizer)
        ids = [*opening, *tokenizer.encode(document)]
        return ids, [] if tokenizer.is_ours else [(0, max(1, len(opening)))]
    ids, spans = replies(document, tokenizer)
    weights = [message.get("weight") for message in document if message["role"] == "assistant"]
    if tokenizer.is_ours:
        return ids, [span for span, weight in zip(spans, weights) if weight == 0]
    learned = [span for span, weight in zip(spans, weights) if weight != 0]
    bounds = [0, *chain.from_iterable(learned), len(ids)]
    return ids, [(start, stop) for start, stop in zip(bounds[::2], bounds[1::2]) if start < stop]


def ids_and_mask(document: Document, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return a document's ids and a mask of those that are learned, each (n,).

    The first id never is, because nothing predicts it.
    """
    found, unlearned = ids_and_unlearned(document, tokenizer)
    ids = np.array(found, np.int64)
    return ids, learned_mask(ids, unlearned, tokenizer)


def learned_mask(
    ids: np.ndarray, unlearned: list[tuple[int, int]], tokenizer: Tokenizer
) -> np.ndarray:
    """Return a mask of the ids that are learned; `unlearned`: see ids_and_unlearned."""
    mask = loss_mask(ids, tokenizer)
    for start, stop in [(0, 1), *unlearned]:
        mask[start:stop] = False
    return mask


def check_learnable(tokenizer: Tokenizer, name: object) -> None:
    """Raise UserError if conversations cannot be learned with a tokenizer, which `name` names."""
    if reply_end(tokenizer) is None:
        raise UserError(
            f"{name} cannot learn conversations: no special token ends a reply in its chat "
            f"format, so it would never stop; export the model again from its source, and correct "
            f"the chat_template there if it has one"
        )


def tokenizer_with_system(tokenizer: Tokenizer, message: str) -> Tokenizer:
    """Return a tokenizer in whose format chats without a system message have this one.

    It is the given one if there is no message, or if the message holds the name of a special token,
    which a format would take for the token, or a `<|`, which our chat template breaks up.
    """
    if not message or "<|" in message or tokenizer.special_pattern.search(message):
        return tokenizer
    it, chat = tokenizer, tokenizer.chat.with_usual_system(message)
    return Tokenizer(it.ranks, it.pattern, it.kept, it.special, chat, it.added, it.normal_form)


def document_number(document: Document) -> int:
    """Return a 64-bit hash of the document."""
    text = document if isinstance(document, str) else json.dumps(document)
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8)
    return int.from_bytes(digest.digest())
