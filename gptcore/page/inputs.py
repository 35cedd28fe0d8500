"""Turns what a page or an API sends into messages and settings, or refuses it with a UserError.

Nothing that comes over the network is trusted: sliders let NaN, true and 10.7 through, and a
history can be invented.

    >>> to_messages([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "")
    [{'role': 'user', 'content': 'Hi'}]
"""

from typing import Any

from gptcore.checks import UserError
from gptcore.sampling import SETTINGS, Sampling
from gptcore.text.chat_template import Message


def text_of(content: Any) -> str:
    """A message's text: the page sends a list of parts, the API a string."""
    parts = content if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise UserError(f"a message's content must be text, not {type(text).__name__}")
        texts.append(text)
    return "".join(texts)


def to_messages(history: Any, system_prompt: Any) -> list[Message]:
    """The page's or a caller's history as messages; gptcore.text.chat_template checks the roles."""
    if not isinstance(history, list) or not all(isinstance(turn, dict) for turn in history):
        raise UserError('history must be a list of {"role": ..., "content": ...}')
    if not isinstance(system_prompt, str):
        raise UserError("system_prompt must be text")
    system = [{"role": "system", "content": system_prompt}] if system_prompt.strip() else []
    turns = [{"role": t.get("role"), "content": text_of(t.get("content"))} for t in history]
    return system + turns


def whole_number(name: str, value: Any) -> int:
    """Sliders send 10 as 10.0, and let NaN, true and 10.7 through."""
    if value is None:
        raise UserError(f"{name} is empty: give a whole number")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise UserError(f"{name}={value!r} is not a whole number")
    return int(value)


def to_settings(values: tuple, highest: int) -> tuple[Sampling, int]:
    """The side panel's values, in the order of `settings_panel`, as sampling and max_tokens.

    `highest`: the most tokens that may be asked for.
    """
    temperature, max_tokens, *others = values
    max_tokens = whole_number("max_tokens", max_tokens)
    if not (1 <= max_tokens <= highest):
        raise UserError(f"max_tokens={max_tokens} is out of range: choose 1 to {highest}")
    chosen = {
        setting.name: whole_number(setting.name, value) if setting.is_whole else value
        for setting, value in zip(SETTINGS, (temperature, *others), strict=True)
    }
    return Sampling(**chosen), max_tokens
