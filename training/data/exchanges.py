"""Tables of questions: people ask several in one chat, though each row is a chat of its own.

A model that learns the rows as they are answers the second question of a chat less well than the
first, and the sixth far less (docs/log.md, 2026-11-29). So in each epoch most rows follow another
one in its chat.
"""

import numpy as np

from gptcore.text.chat_template import loss_mask, messages_of, replies, reply_end
from gptcore.text.tokenizer import Tokenizer
from training.data.rows import Rows

MOST = 5000  # documents of a table
FOLLOWING = 0.7  # share of the conversations that follow another


class Exchanges:
    """The conversations of one question and its answer, if most documents of a split are such.

    `starts`: where in its only shard each begins; empty if the split is no such table.
    `n_left_out`: how many of its first ids one lacks that follows another.
    """

    def __init__(self, rows: Rows):
        self.starts, self.n_left_out = np.zeros(0, np.int64), 0
        documents = rows.documents(0)
        if len(rows.split) > 1 or len(documents) > MOST or reply_end(rows.tokenizer) is None:
            return
        opening, self.n_left_out = chat_opening(rows.tokenizer)
        pieces = [(0, start, start + length) for _, start, length in documents.tolist()]
        found = [piece[1] for piece in pieces if is_exchange(rows, piece, opening)]
        if 2 * len(found) > len(documents):
            self.starts = np.array(found)

    def follow(self, documents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the documents that follow the one before in its chat, and return their indices.

        `documents`: as Packing takes them; those that are drawn lose the opening of a chat.
        """
        is_one = np.isin(documents[:, 1], self.starts)
        possible = 1 + np.flatnonzero(is_one[1:] & is_one[:-1])
        drawn = possible[rng.random(len(possible)) < FOLLOWING]
        documents[drawn, 1] += self.n_left_out
        documents[drawn, 2] -= self.n_left_out
        return drawn


def is_exchange(rows: Rows, piece: tuple[int, int, int], opening: list[int]) -> bool:
    """Return whether a document begins as a chat does that has no system message, and has one reply
    to learn."""
    ids, hidden = rows.join([piece])
    is_learned = loss_mask(ids, rows.tokenizer) & ~hidden
    n_replies = np.count_nonzero(is_learned[1:] & ~is_learned[:-1])
    return n_replies == 1 and ids[: len(opening)].tolist() == opening


def chat_opening(tokenizer: Tokenizer) -> tuple[list[int], int]:
    """Return the ids before the first user's words, and how many of them the next user's lack.

    >>> chat_opening(Tokenizer({bytes([b]): b for b in range(256)}))
    ([256, 259], 1)
    """
    one, other, two = (replies(messages_of(turns), tokenizer)[0] for turns in ("AB", "BB", "ABAB"))
    n = next(i for i, ids in enumerate(zip(one, other)) if ids[0] != ids[1])
    return one[:n], 2 * len(one) - len(two)
