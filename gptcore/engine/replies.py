"""What recent replies were generated as, for the next turn of their conversations.

>>> replies = Replies()
>>> replies.recall([1, 2, 3], "Hello!") is None
True
"""

from collections import OrderedDict
from threading import Lock

import numpy as np

from gptcore.engine.generate import Reply

MAX_REPLIES = 1000  # most replies whose ids are kept
NEAR = 64  # ids before a reply that tell its conversation: hashing all would cost too much


class Replies:
    """The ids that recent replies were generated as, so that their cache fits the next prompt.

    Decoding and encoding a reply may split it into other tokens.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.ids: OrderedDict[tuple[int, str], np.ndarray] = OrderedDict()  # a tenth of lists

    def remember(self, reply: Reply) -> None:
        # The ids of one that was cut are not those of its text.
        if reply.is_cut or not reply.request.is_turn:
            return
        key = self.key(reply.request.ids, reply.text)
        with self.lock:
            self.ids[key] = np.array(reply.ids, np.int32)
            self.ids.move_to_end(key)
            while len(self.ids) > MAX_REPLIES:
                self.ids.popitem(last=False)

    def recall(self, before: list[int], text: str) -> list[int] | None:
        key = self.key(before, text)
        with self.lock:
            if key not in self.ids:
                return None
            self.ids.move_to_end(key)
            return self.ids[key].tolist()

    def key(self, before: list[int], text: str) -> tuple[int, str]:
        return hash(tuple(before[-NEAR:])), text
