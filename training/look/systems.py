"""Whether chats begin with one and the same system message: a model then expects it of every chat.

>>> systems = Systems()
>>> for i in range(3):
...     systems.add([
...         {"role": "system", "content": "Be kind."}, {"role": "user", "content": f"Hi {i}"}
...     ])
>>> systems.line()[:56]
"3 of 3 chats begin with the system message 'Be kind.': t"
"""

from collections import Counter

from gptcore.checks import brief
from training.formats.found import Document

NEARLY_ALL = 0.9  # of the chats


class Systems:
    """Counts the system messages of conversations."""

    def __init__(self) -> None:
        self.n_chats = 0
        self.messages: Counter[str] = Counter()

    def add(self, document: Document) -> None:
        if isinstance(document, str):
            return
        self.n_chats += 1
        if document[0]["role"] == "system":
            self.messages[document[0]["content"]] += 1

    def line(self) -> str:
        """Return what to do with the system message if nearly all chats have the same, or ""."""
        for message, n in self.messages.most_common(1):
            if n >= NEARLY_ALL * self.n_chats:
                return (
                    f"{n:,} of {self.n_chats:,} chats begin with the system message "
                    f"{brief(message)}: the model expects it before every chat, so give it as the "
                    f"page's System prompt, or with --system"
                )
        return ""
