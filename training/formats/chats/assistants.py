"""What assistants export of their talks, as messages that rows.conversation reads.

>>> exported({"chat_messages": [{"sender": "human", "text": "Hi"}]})
[{'role': 'human', 'content': ['Hi']}]
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training.formats.found import Unreadable

# Where ChatGPT, Claude and Google's AI Studio have the messages of a talk.
EXPORTED = ("mapping", "chat_messages", "chunkedPrompt")
WORDS = ("text", "multimodal_text")  # ChatGPT's kinds of content that were said
# What ChatGPT's page shows as a source or as a link on a name; the name is a word of the reply.
MARK = re.compile('\ue200(?:entity\ue202\\["[^"]*","([^"]*)")?[^\ue201]*\ue201')
Said = tuple[str, list[Any]]  # a role, and texts or what is no text


def exported(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the messages of a talk, those of tools first, or None for a row of another form.

    Raises Unreadable if the row only looks like such a talk.
    """
    mapping, messages, prompt = (row.get(name) for name in EXPORTED)
    responses, tree = row.get("responses"), row.get("prompt")
    try:
        if isinstance(mapping, Mapping):
            at = row.get("current_node") or [None, *mapping][-1]  # DeepSeek names none
            return turns_of([of_chatgpt(one) for one in branch(mapping, at)])
        if isinstance(messages, list):
            return turns_of([of_claude(message) for message in messages])
        if isinstance(prompt, Mapping):
            return turns_of([of_ai_studio(chunk) for chunk in prompt["chunks"]])
        if isinstance(responses, list) and "conversation" in row:
            return turns_of([(one["sender"], [one["message"]]) for one in of_grok(responses)])
        if isinstance(tree, Mapping) and "replies" in tree:  # of OpenAssistant
            return turns_of([(one["role"], [one["text"]]) for one in best(tree)])
    except (AttributeError, KeyError, TypeError) as error:
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


def of_grok(responses: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Return the messages that lead to the newest one, as of ChatGPT's."""
    messages = [response["response"] for response in responses]
    nodes: dict[Any, Any] = {}
    newest = None
    for message in sorted(messages, key=lambda one: str(one["create_time"])):
        parent = message.get("parent_response_id") or newest
        newest = message["_id"]
        nodes[newest] = {"message": message, "parent": parent}
    return branch(nodes, newest)


def of_chatgpt(message: Mapping[str, Any]) -> Said:
    if isinstance(fragments := message.get("fragments"), list):  # of DeepSeek
        said = {one["type"]: one.get("content") for one in fragments}
        role, kind = ("user", "REQUEST") if "REQUEST" in said else ("assistant", "RESPONSE")
        return role, [*(message.get("files") or []), said.get(kind)]
    content, author = message.get("content") or {}, message.get("author") or {}
    is_said = content.get("content_type") in WORDS and message.get("recipient", "all") == "all"
    parts = [
        MARK.sub(r"\1", part) if isinstance(part, str) else part
        for part in content.get("parts") or []
        if not is_sound(part)  # beside what was said, as text
    ]
    return (author.get("role", "") if is_said else "tool"), parts


def is_sound(part: Any) -> bool:
    return (
        isinstance(part, Mapping)
        and "audio" in part.get("content_type", "")
        and not isinstance(part.get("text"), str)
    )


def of_claude(message: Mapping[str, Any]) -> Said:
    """A picture stays a part that is no text; what is attached as text comes before the message."""
    attachments = message.get("attachments") or []
    attached = [text for one in attachments if (text := one.get("extracted_content"))]
    parts = message.get("content") or []
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    files = message.get("files") or [] if message.get("sender") == "human" else []  # not its own
    return message.get("sender", ""), [
        *attached,
        *files,
        *(texts or [message.get("text") or ""]),
    ]


def of_ai_studio(chunk: Mapping[str, Any]) -> Said:
    """A picture is a chunk without text."""
    return ("tool" if chunk.get("isThought") else chunk["role"]), [chunk.get("text", chunk)]


def best(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a message, the best reply to it, the best to that one, and so on."""
    yield message
    while replies := message.get("replies"):
        ranks = [reply.get("rank") for reply in replies]  # the best one has the lowest, if any has
        message = replies[ranks.index(min((r for r in ranks if r is not None), default=None))]
        yield message
