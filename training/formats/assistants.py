"""What ChatGPT and Claude export of their talks, as messages that rows.conversation reads.

>>> exported({"chat_messages": [{"sender": "human", "text": "Hi"}]})
[{'role': 'human', 'content': ['Hi']}]
"""

from collections.abc import Iterator, Mapping
from typing import Any

from training.formats.found import Unreadable

EXPORTED = ("mapping", "chat_messages")  # where ChatGPT and Claude have the messages of a talk
WORDS = ("text", "multimodal_text")  # ChatGPT's kinds of content that were said
Said = tuple[str, list[Any]]  # a role, and texts or what is no text


def exported(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the messages of a talk, those of tools first, or None for a row of another form.

    Raises Unreadable if the row only looks like such a talk.
    """
    mapping, messages = (row.get(name) for name in EXPORTED)
    try:
        if isinstance(mapping, Mapping):
            return turns_of([of_chatgpt(one) for one in branch(mapping, row.get("current_node"))])
        if isinstance(messages, list):
            return turns_of([of_claude(message) for message in messages])
    except (AttributeError, TypeError) as error:
        raise Unreadable(f"it is an export of an assistant in an unknown form ({error})") from None
    return None


def turns_of(said: list[Said]) -> list[dict[str, Any]]:
    tools = [{"role": role, "content": parts} for role, parts in said if role == "tool"]
    turns: list[dict[str, Any]] = []
    for role, parts in said:
        if role == "tool" or not any(parts):
            continue  # an empty message is where a talk begins, or a reply that only called a tool
        if turns and turns[-1]["role"] == role:  # what it says before and after it uses a tool
            turns[-1]["content"] += parts
        else:
            turns.append({"role": role, "content": parts})
    return [*tools, *turns]


def branch(mapping: Mapping[str, Any], at: Any) -> Iterator[Mapping[str, Any]]:
    """Return the messages that lead to the one shown last: a talk branches where one is edited."""
    found = []
    for _ in mapping:
        node = mapping.get(at)
        if not isinstance(node, Mapping):
            break
        found.append(node.get("message"))
        at = node.get("parent")
    return (message for message in reversed(found) if isinstance(message, Mapping))


def of_chatgpt(message: Mapping[str, Any]) -> Said:
    content, author = message.get("content") or {}, message.get("author") or {}
    is_said = content.get("content_type") in WORDS and message.get("recipient", "all") == "all"
    return (author.get("role", "") if is_said else "tool"), content.get("parts") or []


def of_claude(message: Mapping[str, Any]) -> Said:
    """A picture stays a part that is no text; what is attached as text comes before the message."""
    attachments = message.get("attachments") or []
    attached = [text for one in attachments if (text := one.get("extracted_content"))]
    parts = message.get("content") or []
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return message.get("sender", ""), [
        *attached,
        *(message.get("files") or []),
        *(texts or [message.get("text") or ""]),
    ]
