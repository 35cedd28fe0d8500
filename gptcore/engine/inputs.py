"""Convert input of the page or the API to messages and settings; raise UserError if invalid.

Nothing that arrives over the network is trusted: a caller can send NaN, true and 10.7, and can
invent a history.

    >>> to_messages([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': 'Hi'}]
"""

from typing import Any

from gptcore.checks import UserError, brief, build, check_within
from gptcore.engine.sampling import SETTINGS, Sampling
from gptcore.facts import ModelFacts
from gptcore.text.chat_template import Message

MOST_STOPS = 16
LONGEST_STOP = 100  # characters: each is compared with a reply's end at every token


def check_stops(stops: Any) -> tuple[str, ...]:
    """Return the texts that end a reply."""
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise UserError("stop must be a list of texts, none of them empty")
    if len(stops) > MOST_STOPS:
        raise UserError(f"stop holds {len(stops)} texts: give at most {MOST_STOPS}")
    if (longest := max(map(len, stops), default=0)) > LONGEST_STOP:
        raise UserError(f"stop has {longest:,} characters: give at most {LONGEST_STOP:,}")
    return tuple(stops)


def text_of(content: Any, where: str = "a message") -> str:
    """Return a message's text, which may be sent as a list of parts; raises UserError."""
    parts = content if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise UserError(f"{where}: its content must be text: this model reads nothing else")
        texts.append(text)
    return "".join(texts)


def to_messages(history: Any) -> list[Message]:
    """Convert a history to messages; gptcore.text.chat_template checks their roles later."""
    if not isinstance(history, list) or not all(isinstance(turn, dict) for turn in history):
        raise UserError('history must be a list of {"role": ..., "content": ...}')
    return [{"role": t.get("role"), "content": text_of(t.get("content"))} for t in history]


def whole_number(name: str, value: Any) -> int:
    """Return an int; 10.0 is one, in JavaScript. Raises UserError for NaN, true and 10.7."""
    if value is None:
        raise UserError(f"{name} is empty: give a whole number")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise UserError(f"{name}={brief(value)} is not a whole number")
    return int(value)


def usual_sampling(facts: ModelFacts) -> Sampling:
    """Return a model's default settings: those that its makers recommend, or else ours.

    Raises UserError if those in gptcore.json are invalid.
    """
    whole = {s.name for s in SETTINGS if s.is_whole}
    given = facts.sampling
    return build(Sampling, {n: whole_number(n, v) if n in whole else v for n, v in given.items()})


def to_settings(values: dict[str, Any], highest: int) -> tuple[Sampling, int]:
    """Convert values by name to settings and max_tokens, which may be at most `highest`.

    Raises UserError.
    """
    max_tokens = whole_number("max_tokens", values["max_tokens"])
    check_within("max_tokens", max_tokens, 1, highest)
    chosen = {
        s.name: whole_number(s.name, values[s.name]) if s.is_whole else values[s.name]
        for s in SETTINGS
    }
    return Sampling(**chosen), max_tokens
