"""Token shards in memory, of texts and conversations of random lengths."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from gptcore.text.tokenizer import Tokenizer
from training.data.rows import Rows
from training.data.shards.shard import Shard

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
ENDOFTEXT, PAD, _, USER, ASSISTANT, END = BYTES.special.values()


@dataclass(frozen=True)
class Part:
    """As training.data.shards.shard.Shard."""

    name: str
    ids: np.ndarray
    starts: np.ndarray
    unlearned: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: slice) -> np.ndarray:
        return self.ids[which]

    hidden = Shard.hidden


@dataclass(frozen=True)
class Tokens:
    """Ids of some shards, and which of them are to be learned, by how they were made."""

    ids: list[np.ndarray]
    starts: list[np.ndarray]
    learned: list[np.ndarray]
    tokenizer: Tokenizer = BYTES

    def split(self, name: str) -> list[Part]:
        """As Shards.split."""
        return [Part(str(i), *pair) for i, pair in enumerate(zip(self.ids, self.starts))]


# A plain text is its length, a conversation the lengths of its messages.
text_lengths = st.integers(1, 40)
chat_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=6)
shard_shapes = st.lists(st.one_of(text_lengths, chat_lengths), min_size=1, max_size=8)


@st.composite
def token_shards(draw: st.DrawFn, max_size: int = 3) -> Tokens:
    """At most max_size shards of texts and conversations of random lengths."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    result = Tokens([], [], [])
    for shape in draw(st.lists(shard_shapes, min_size=1, max_size=max_size)):
        ids, starts, learned = [], [], []
        is_after_text = True
        for document in shape:
            starts.append(len(ids))
            ids.append(ENDOFTEXT)
            learned.append(is_after_text)  # it is what ends the text before
            is_after_text = isinstance(document, int)
            if is_after_text:
                ids += rng.integers(0, 256, document).tolist()
                learned += [True] * document
                continue
            for i, length in enumerate(document):
                role = (USER, ASSISTANT)[i % 2]
                ids += [role, *rng.integers(0, 256, length).tolist(), END]
                learned += [False, *[role == ASSISTANT] * (length + 1)]
        result.ids.append(np.array(ids, np.uint16))
        result.starts.append(np.array(starts, np.int64))
        result.learned.append(np.array(learned))
    return result


def plain_rows(lengths: list[int]) -> Rows:
    """Rows of four tokens; a shard for each number of rows, of one text."""
    ids = [np.arange(4 * n + 1) % 256 for n in lengths]
    return Rows(Tokens(ids, [np.array([0])] * len(ids), []), "train", 4)
