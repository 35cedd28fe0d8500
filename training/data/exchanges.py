"""Tables of questions: people ask several in one chat, though each row is a chat of its own.

A model that learns the rows as they are answers the second question of a chat less well than the
first, and the sixth far less (docs/log.md, 2026-11-29). So in each epoch most rows follow another
one in its chat, if both begin with the same system message or none.
"""

from itertools import pairwise

import numpy as np

from gptcore.text.chat_template import loss_mask, messages_of, render, replies, reply_end
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import MOST_ROWS, is_table
from training.data.rows import NONE, Rows

FOLLOWING = 0.7  # share of the conversations that follow another


class Exchanges:
    """The conversations of one question and its answer, if a split is a table of these.

    `openings`: for each, by its place in the shard, the ids before the user's words. It is empty if
    the split has several shards or is no table.
    """

    def __init__(self, rows: Rows):
        self.openings: dict[int, list[int]] = {}
        documents = rows.documents(0)
        may_be_table = len(rows.split) == 1 and len(documents) <= MOST_ROWS
        if not may_be_table or reply_end(rows.tokenizer) is None:
            return
        marker = user_marker(rows.tokenizer)
        if not marker:
            return  # in such a format nothing tells where a user begins
        for _, start, length in documents.tolist():
            opening = opening_of(rows, (0, start, start + length), marker)
            if opening is not None:
                self.openings[start] = opening
        if not is_table(len(self.openings), len(documents)):
            self.openings = {}

    def follow(self, documents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw which documents follow the one before them in its chat; return their indices.

        `documents`: as Packing takes them. The drawn ones are cut in place by their opening,
        which the one before has, too.
        """
        if not self.openings:
            return NONE
        openings = [self.openings.get(start) for start in documents[:, 1].tolist()]
        possible = [i for i, (a, b) in enumerate(pairwise(openings), 1) if a is not None and a == b]
        drawn = np.array(possible, np.int64)[rng.random(len(possible)) < FOLLOWING]
        n_left_out = [len(openings[i] or ()) for i in drawn.tolist()]
        documents[drawn, 1] += np.array(n_left_out, np.uint32)
        documents[drawn, 2] -= np.array(n_left_out, np.uint32)
        return drawn


def opening_of(rows: Rows, piece: tuple[int, int, int], marker: list[int]) -> list[int] | None:
    """Return the ids before what the user says; None unless one message and one reply are there."""
    ids, hidden = rows.join([piece])
    is_learned = loss_mask(ids, rows.tokenizer) & ~hidden
    n_replies = np.count_nonzero(is_learned[1:] & ~is_learned[:-1])
    if n_replies != 1:
        return None
    found = ids.tolist()
    places = [i for i in range(len(found)) if found[i : i + len(marker)] == marker]
    return found[: places[0]] if len(places) == 1 else None


def user_marker(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that stand before what a user says.

    >>> user_marker(Tokenizer({bytes([b]): b for b in range(256)}))
    [259]
    """
    one, other = (replies(messages_of(turns), tokenizer)[0] for turns in ("AB", "BB"))
    n = next(i for i, ids in enumerate(zip(one, other)) if ids[0] != ids[1])
    return one[len(render([], tokenizer)) : n]
