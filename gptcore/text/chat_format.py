"""The format of texts and conversations: which special tokens and words open and close them.
The default is gptcore's own. A model made elsewhere brings its own format.

>>> ChatFormat().user
('<|user|>', '<|end|>')
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from gptcore.checks import UserError, build, check_type

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

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ChatFormat":
        """Build a ChatFormat from what `to_dict` returned, or its JSON; raises UserError."""
        check_type("chat", values, dict)
        pairs = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        result = build(cls, values | pairs)
        for name, default in dataclasses.asdict(cls()).items():
            value = getattr(result, name)
            is_alike = type(value) is type(default)
            if is_alike and isinstance(default, tuple):
                is_alike = [*map(type, value)] == [*map(type, default)]
            if not is_alike:
                raise UserError(f"the chat format's {name} is {value!r}, not like {default!r}")
        return result
