"""The format of texts and conversations: which special tokens and words open and close them.
The default is gptcore's own. A model made elsewhere brings its own format.

>>> ChatFormat().user
('<|user|>', '<|end|>')
"""

from dataclasses import dataclass

Ends = tuple[str, str]  # the strings before and after a message's text


@dataclass(frozen=True)
class ChatFormat:
    """The strings around messages; each may hold names of special tokens and ordinary words."""

    text: str = "<|endoftext|>"  # opens a plain text
    opening: str = "<|endoftext|>"  # opens a conversation with a system message
    opening_alone: str = "<|endoftext|>"  # opens a conversation without a system message
    system: Ends = ("<|system|>", "<|end|>")
    user: Ends = ("<|user|>", "<|end|>")
    assistant: Ends = ("<|assistant|>", "<|end|>")
    prompt: str = "<|assistant|>"  # opens the assistant's reply in a prompt
    trims: bool = False  # white space around a message is removed
