"""One row of JSON or of a table to a document: a text, or a conversation in one of these forms.

messages                        role and content; OpenAI's weight, name and tools, and kin of these
conversations, conversation     ShareGPT's from and value, or messages, or pairs such as below
instruction, input, output      Alpaca's
prompt, completion              TRL's, each a text or messages
question, answer                and other names of the two, see PAIRS; also with context or history
label                           KTO's: of those above, a row with false is not learned
chosen                          the whole conversation that is preferred, or its last reply
text                            and other names of it, see TEXTS; also with the marks of a template
mapping, chat_messages, ...     what assistants export, see training.formats.chats.assistants

    >>> document_of({"question": "2 + 2?", "answer": "4"}, Asked())[0]
    [{'role': 'user', 'content': '2 + 2?'}, {'role': 'assistant', 'content': '4'}]
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from gptcore.text.chat_template import messages_of
from training.formats.chats.assistants import exported
from training.formats.found import Asked, Document, Found, Item, Skip, Unreadable
from training.formats.lines import parse_row
from training.formats.templates import turns_in
from training.formats.texts import documents_of

LONGEST_ROW = 4096  # characters of a text in one piece: a shorter one is a document as it is
CONVERSATIONS = ("messages", "conversations", "conversation")
PAIRS = (
    ("instruction", "output"),
    ("instruction", "response"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("prompt", "chosen"),
    ("question", "answer"),
    ("question", "response"),
    ("question", "chosen"),
    ("instruction", "chosen"),
    ("query", "response"),
    ("query", "answer"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("input", "output"),
    ("input", "chosen"),
    ("source", "target"),
    ("q", "a"),
    ("frage", "antwort"),
    ("问题", "答案"),
)
SYSTEM = ("system", "system_prompt")
BESIDE = ("context", "input")  # what a question is about; an input only beside an instruction
WANTED = ("label", "kto_tag")  # KTO's: false where a reply is an example of a bad one
WEIGHTS = ("weight", "loss_weight", "loss", "train")  # of OpenAI, LLaMA-Factory, ms-swift, axolotl
MEDIA = ("image", "images", "video", "videos", "audio", "audios")  # LLaVA's, LLaMA-Factory's
TEXTS = ("text", "content", "document", "body", "story", "article")
ROLES = {
    "system": ("system", "developer"),
    "user": ("user", "human", "customer", "prompter"),
    "assistant": ("assistant", "gpt", "chatgpt", "bot", "model", "ai", "bard", "agent"),
    "": ("tool", "function", "function_call", "function_response", "observation", "ipython"),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
NAME_COLUMNS = (
    "name in --columns the question's and the answer's column, with a comma between, or one column "
    "of texts"
)
MESSAGES = re.compile(r"\[\s*\{")  # how they begin as JSON


def document_of(row: Any, asked: Asked) -> tuple[Document, list[str]]:
    """Return the document of a row, which may be an Unreadable, and what was left out of it.

    Raises Unreadable if it has none.
    """
    if isinstance(row, Unreadable):
        raise row
    if not isinstance(row, Mapping):
        raise Unreadable(f"it is {a_name_of(row)}, not an object with keys")
    if asked.columns:
        return of_columns(row, asked.columns), []
    keys = {str(key).strip().lower(): key for key in row}
    told = [name for name in (*CONVERSATIONS, "chosen") if name in keys]
    row = {**row, **{keys[name]: parsed(name, row[keys[name]]) for name in told}}
    if (talk := exported(row)) is not None:
        return conversation(talk)
    for name in CONVERSATIONS:
        if name in keys:
            check_wanted(row, keys, (str, list, Mapping))
            messages, chosen = row[keys[name]], value_of(row, keys, "chosen")
            if isinstance(messages, list) and isinstance(chosen, str | list | Mapping):
                messages = answered(messages, chosen)
            return conversation(messages, first=value_of(row, keys, *SYSTEM))
    for question, answer in PAIRS:
        if question in keys and answer in keys:
            return pair(row, keys, question, answer)
    chosen = value_of(row, keys, "chosen")
    if isinstance(chosen, str):
        chosen = turns_in(chosen)
    if isinstance(chosen, list) and chosen:
        return conversation(chosen, first=value_of(row, keys, *SYSTEM))
    if {"parent_id", "role", "text"} <= {*keys}:
        raise Unreadable("it is one message of a tree: take the file that has whole trees")
    for name in TEXTS:
        if name in keys:
            text = words_of(row[keys[name]], name)
            return conversation(turns) if (turns := turns_in(text)) else (text, [])
    if not row:
        raise Unreadable("it is an empty object")
    raise Unreadable(f"it has no known key: its keys are {keys_in(row)}: {NAME_COLUMNS}")


def parsed(name: str, value: Any) -> Any:
    """Return a conversation that is written as JSON, as in tables; a chosen reply may be a text."""
    is_json = isinstance(value, str) and MESSAGES.match(value)
    try:
        return parse_row(value) if is_json else value
    except Unreadable:
        if name != "chosen":
            raise
        return value


def keys_in(row: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, list(row)[:8]))


def check_wanted(row: Mapping[str, Any], keys: dict[str, str], media: tuple[type, ...]) -> None:
    """Raise Unreadable for a row whose reply is marked as bad, or that is about pictures or sounds.

    `media`: the types of value by which a row is about these.
    """
    for name in WANTED:  # a table has it as a text
        if str(value_of(row, keys, name)).lower() == "false":
            raise Unreadable(f"its {name!r} is false: it is an example of a bad reply")
    for name in MEDIA:
        if (value := value_of(row, keys, name)) and isinstance(value, media):
            raise Unreadable(f"it is about its {name!r}, which a text model cannot read")


def value_of(row: Mapping[str, Any], keys: dict[str, str], *names: str) -> Any:
    """Return what a row has under the first of the names, in upper or lower case, or None."""
    return next((row[keys[name]] for name in names if name in keys), None)


def items_of(row: Any, where: str, asked: Asked) -> Found:
    """Yield a row's document, or why it has none, and what was left out of it.

    A long text is cut where its paragraphs end.
    """
    try:
        document, left_out = document_of(row, asked)
    except Unreadable as error:
        yield Skip(where, str(error))
    else:
        is_text = "target" in row or "source" in asked.columns  # and names nothing
        source = "" if is_text else row.get("source")
        source = source if isinstance(source, str) else ""
        parts: Iterable[Document] = [document]
        if isinstance(document, str):
            parts = documents_of([document], LONGEST_ROW)
        for number, part in enumerate(parts):
            yield Item(part, source, is_rest=number > 0)
        yield from (Skip(where, reason) for reason in left_out)


def of_columns(row: Mapping[str, Any], columns: tuple[str, ...]) -> Document:
    if missing := [name for name in columns if name not in row]:
        raise Unreadable(f"it has no key {missing[0]!r}: its keys are {keys_in(row)}")
    texts = [text_of(row[name], name) for name in columns]
    if len(texts) > 1:
        return list(messages_of(texts))
    return conversation(turns)[0] if (turns := turns_in(texts[0])) else texts[0]


def pair(
    row: Mapping[str, Any], keys: dict[str, str], question: str, answer: str
) -> tuple[Document, list[str]]:
    """Return the conversation of a question and its answer, with what else the row says."""
    check_wanted(row, keys, (list, Mapping))  # a name may be beside a question of any kind
    asked, reply = row[keys[question]], row[keys[answer]]
    system = value_of(row, keys, *SYSTEM)
    if isinstance(asked, list) or isinstance(reply, list | Mapping):  # TRL's conversational form
        asked = asked if isinstance(asked, list) else messages_of([asked])
        return conversation(answered(asked, reply), first=system)
    if talk := turns_in(f"{asked}{reply}"):  # a prompt may end with the mark of the reply
        return conversation(talk, first=system)
    texts, left_out = [text_of(asked, question)], []
    for name in BESIDE[: 1 + (question == "instruction")]:
        beside = value_of(row, keys, name)
        if isinstance(beside, list | Mapping | bool):
            if beside:
                left_out.append(f"its {name!r} is {a_name_of(beside)}, not a text")
        elif beside is not None and str(beside).strip():
            texts.append(text_of(beside, name))
    earlier: list[str] = []
    history = value_of(row, keys, "history")
    if isinstance(history, list) and all(isinstance(t, list) and len(t) == 2 for t in history):
        earlier = [text_of(said, "history") for talk in history for said in talk]
    elif history:
        left_out.append(f"its 'history' is {a_name_of(history)}, not pairs")
    texts = [*earlier, "\n\n".join(texts), text_of(reply, answer)]
    turns, _ = conversation(messages_of(texts), first=system)
    return turns, left_out


def answered(asked: list[Any], reply: Any) -> list[Any]:
    """Return a conversation with its reply: a text, a message, messages, or the whole of it."""
    if isinstance(reply, list):
        return reply if role_of_first(reply) in ("user", "system") else [*asked, *reply]
    is_message = isinstance(reply, Mapping)
    return [*asked, reply if is_message else {"role": "assistant", "content": reply}]


def role_of_first(messages: list[Any]) -> str | None:
    first = messages[0] if messages else {}
    named = first.get("role", first.get("from")) if isinstance(first, Mapping) else None
    return ROLE_OF.get(str(named).lower())


def text_of(value: Any, key: str) -> str:
    """Return a question's or an answer's text, which may be a number. Raises Unreadable."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return words_of(str(value) if is_number else value, key)


def words_of(value: Any, key: str) -> str:
    """Return a text. Raises Unreadable if it is empty or something else."""
    if not isinstance(value, str):
        raise Unreadable(f"its {key!r} is {a_name_of(value)}, not a text")
    if not value.strip():
        raise Unreadable(f"its {key!r} is empty")
    return checked(value)


def checked(text: str) -> str:
    """Return the text. Raises Unreadable for what JSON can hold but a text cannot."""
    if "\0" in text:
        raise Unreadable("it holds a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Unreadable("a character is only half a surrogate pair") from None
    return text


def conversation(messages: Any, first: Any = None) -> tuple[Document, list[str]]:
    """Return a conversation of messages as others write them, and what was left out.

    `first`: the row's own system prompt, unless the messages have one. Raises Unreadable,
    counting messages from 1.
    """
    if not isinstance(messages, list):
        raise Unreadable(f"its messages are {a_name_of(messages)}, not a list")
    turns: list[dict[str, Any]] = []
    left_out: list[str] = []
    if isinstance(first, str) and first.strip() and role_of_first(messages) != "system":
        turns.append({"role": "system", "content": checked(first)})
    for number, message in enumerate((one for both in messages for one in halves(both)), 1):
        turn = turn_of(message, number)
        if isinstance(turn, Skip):
            left_out.append(turn.reason)
        elif turn["role"] == "system" and turns:
            raise Unreadable(f"message {number} is a system message, which only the first may be")
        else:
            turns.append(turn)
    if not any(turn["role"] == "assistant" and turn.get("weight") != 0 for turn in turns):
        raise Unreadable("it has no reply of an assistant, so nothing in it is learned")
    return turns, left_out


def halves(message: Any) -> list[Any]:
    """Split a message that holds question and reply, as Capybara and XTuner do; return both."""
    if not isinstance(message, Mapping) or "role" in message or "from" in message:
        return [message]
    pair = next((pair for pair in PAIRS if {*pair} <= {*message}), None)
    if not pair:
        return [message]
    turns = [("user", message[pair[0]]), ("assistant", message[pair[1]])]
    if system := message.get("system"):
        turns.insert(0, ("system", system))
    return [{"role": role, "content": content} for role, content in turns]


def turn_of(message: Any, number: int) -> dict[str, Any] | Skip:
    """Return a message with role and content (and "weight": 0), or why it is left out."""
    where = f"message {number}"
    if not isinstance(message, Mapping):
        raise Unreadable(f"{where} is {a_name_of(message)}, not an object")
    named = message.get("role", message.get("from"))
    role = ROLE_OF.get(named.lower()) if isinstance(named, str) else None
    if named is None:
        raise Unreadable(
            f"{where} has no 'role' (or 'from') that says who speaks, user or assistant; for a "
            f"chat of people make a table with the columns date, user and message"
        )
    if role is None:
        known = "system, user and assistant are known"
        raise Unreadable(f"{where} has the unknown role {named!r}: {known}")
    if not role:
        return Skip(where, f"a message of the role {named!r}")
    content = message.get("content", message.get("value"))
    if isinstance(content, list):  # OpenAI's parts; a picture is no text
        found = [text_in(part) if isinstance(part, Mapping) else part for part in content]
        parts = [part for part in found if isinstance(part, str)]
        if len(parts) < len(found):
            raise Unreadable(f"{where} has parts that are not text")
        content = "\n".join(parts)
    if content in (None, "") and (message.get("tool_calls") or message.get("function_call")):
        return Skip(where, "a message that only calls a tool")
    if not isinstance(content, str):
        raise Unreadable(f"the content of {where} is {a_name_of(content)}, not a text")
    if not content.strip():
        raise Unreadable(f"{where} is empty")
    turn: dict[str, Any] = {"role": role, "content": checked(content)}
    return turn | {"weight": 0} if role == "assistant" and is_unlearned(message) else turn


def text_in(part: Mapping[str, Any]) -> Any:
    """Return the text of a part, which LLaMA-Factory has as the value of a type, or None."""
    return part.get("value") if part.get("type") == "text" and "value" in part else part.get("text")


def is_unlearned(message: Mapping[str, Any]) -> bool:
    weight = next((message[name] for name in WEIGHTS if message.get(name) is not None), 1)
    if weight not in (0, 1):
        raise Unreadable(f"a weight is {weight!r}: it must be 0 or 1")
    return weight == 0


def a_name_of(value: Any) -> str:
    """Return what a value of JSON or of Parquet is: "a list"."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    names |= {bytes: "binary data", datetime: "a time", date: "a date", type(None): "null"}
    return names.get(type(value), "a number")
