"""How many replies of the training text a model gives word for word.

>>> recall(model, rows)                                              # doctest: +SKIP
0.94
"""

import numpy as np
import torch

from gptcore.nn.gpt import GPT, whole_sequence
from training.data.rows import Rows
from training.evaluation.validation import evaluating

MOST = 64  # conversations that are asked


@torch.no_grad()
def recall(model: GPT, rows: Rows) -> float:
    """Return the share of the replies that the model gives word for word at temperature 0, asked
    as in the training text.

    It does if each token is the likeliest one after those before it, so nothing is generated. Of
    many conversations, MOST are asked, spread evenly over the first shard.
    """
    packing = rows.packing(0)
    ends = np.append(packing.starts[1:], len(rows.split[0]))
    replies: list[bool] = []
    with evaluating(model):
        for at in np.unique(np.linspace(0, len(ends) - 1, MOST).astype(int)):
            start, end = int(packing.starts[at]), int(ends[at])
            ids, learned = (part[: end - start] for part in rows.read(packing, start, start))
            if learned[1:].any():
                replies += given(model, ids, learned)
    return sum(replies) / max(len(replies), 1)


def given(model: GPT, ids: np.ndarray, learned: np.ndarray) -> list[bool]:
    """Return of each reply of a conversation whether the model gives it.

    `ids`: (T,) int64. `learned`: (T,) bool, the tokens of the replies.
    """
    device = next(model.parameters()).device
    x = torch.from_numpy(ids[None, :-1]).to(device)
    likeliest = model(**whole_sequence(x))[0][0].argmax(-1).cpu().numpy()
    targets = learned[1:]
    first = np.flatnonzero(targets & ~learned[:-1])  # of each reply
    hits = (likeliest == ids[1:]) | ~targets
    return np.logical_and.reduceat(hits, first).tolist()
