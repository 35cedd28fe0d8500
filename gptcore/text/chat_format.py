"""The format of texts and conversations: which special tokens and words open and close them.
The default is gptcore's own. A model made elsewhere brings its own format.

>>> ChatFormat().user
('<|user|>', '<|end|>')
"""

from dataclasses import dataclass, replace

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

    @property
    def usual_system(self) -> str:
        """The system message of conversations that bring none, or "".

        >>> ChatFormat().with_usual_system("Be kind.").usual_system
        'Be kind.'
        """
        before, after = self.opening + self.system[0], self.system[1]
        is_written = self.opening_alone.startswith(before) and self.opening_alone.endswith(after)
        stop = len(self.opening_alone) - len(after)
        return self.opening_alone[len(before) : stop] if is_written else ""

    def with_usual_system(self, message: str) -> "ChatFormat":
        """Return this format, in which conversations that bring no system message have this one."""
        before, after = self.system
        written = message.strip() if self.trims else message
        return replace(self, opening_alone=self.opening + before + written + after)
