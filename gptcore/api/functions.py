"""Calls of functions that a client demands: what the model must write, and its reply as a call.

>>> demanded({"tool_choice": "required", "tools": [{"function": {"name": "now"}}]})
{'now': {'name': 'now'}}

If one function is demanded, the reply is its arguments. If several are, the system message lists
them, the model chooses one, and the reply is JSON of a name and arguments, as models learn to write
it. If a call is optional, a reply without a call is right.
"""

import json
import uuid
from collections import Counter
from collections.abc import Collection
from copy import deepcopy
from typing import Any
from urllib.parse import quote

from gptcore.checks import UserError, brief, check_choice
from gptcore.engine.schemas.supported import check_schema, parts

Json = dict[str, Any]
Functions = dict[str, Json]  # by their names
MODES = ("auto", "none", "required")  # whether one of some tools must be called
NO_PARAMETERS = {"type": "object", "properties": {}}
NOTHING = "(nothing)"  # a model reads no empty message
CHOOSE = 'Answer by a call, {"name": ..., "arguments": {...}}, of one of these functions:'


def demanded(body: Json) -> Functions:
    """Return the functions, by name, of which the reply must call one; {} if it need not.

    A tool holds a function in /v1/chat/completions, and is one in /v1/responses. Raises UserError
    if tool_choice names a function that the tools lack.
    """
    choice = body.get("tool_choice")
    mode, allowed = choice, allowed_tools(choice)
    if allowed is not None:
        mode = allowed.get("mode")
        check_choice("mode of tool_choice", mode, MODES)
    if mode in (None, "auto", "none"):
        return {}
    offered = read_tools(body)
    if allowed is not None:
        names = read_tools(allowed, "tools of tool_choice")
        offered = {name: offered[name] for name in names if name in offered}
    if mode == "required" and offered:
        return offered
    name = part(choice, "function", "name")
    if name is None and is_function(choice):
        name = part(choice, "name")
    if not isinstance(name, str) or name not in offered:
        raise UserError(f"tool_choice names no function of tools ({brief(choice)})")
    return {name: offered[name]}


def allowed_tools(choice: Any) -> Json | None:
    """Return the part of a choice that names some of the tools, or None if it does not."""
    found = part(choice, "allowed_tools")
    if found is None and part(choice, "type") == "allowed_tools":
        found = choice
    return found if isinstance(found, dict) else None


def read_tools(body: Json, where: str = "tools") -> Functions:
    """Return the functions in a list of tools, by name. `where`: the list's name in errors."""
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        raise UserError(f"{where} must be a list that is not empty")
    functions = [part(tool, "function") or tool for tool in tools if is_function(tool)]
    names = [part(function, "name") for function in functions]
    if not all(isinstance(name, str) and name and name.isprintable() for name in names):
        raise UserError(f"each function of {where} must have a name, of printable characters")
    if twice := next((name for name, n in Counter(names).items() if n > 1), ""):
        raise UserError(f"{where} has two functions named {brief(twice)}: rename one")
    return dict(zip(names, functions))


def is_function(tool: Any) -> bool:
    """Return whether a tool is a function, and not one that OpenAI's own servers have."""
    return part(tool, "type") in (None, "function")


def reply_schema(functions: Functions) -> Json:
    """Return the schema of what the model writes to call one of these functions."""
    schemas = {name: parameters(name, function) for name, function in functions.items()}
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    calls = []
    for name in schemas:
        place = "#/$defs/" + quote(name.replace("~", "~0").replace("/", "~1"), safe="")
        schemas[name] = moved(schemas[name], place)
        properties = {"name": {"const": name}, "arguments": {"$ref": place}}
        calls.append({"type": "object", "properties": properties, "required": [*properties]})
    return {"$defs": schemas, "anyOf": calls}


def parameters(name: str, function: Json) -> Json:
    """Return the schema of a function's arguments; raises UserError naming the function."""
    given = function.get("parameters")
    schema = NO_PARAMETERS if given in (None, {}) else given
    try:
        check_schema(schema)
    except UserError as error:
        raise UserError(f"parameters of {brief(name)}: {error}") from None
    return schema


def moved(schema: Json, place: str) -> Json:
    """Return a schema for a place within another, with its references adjusted to it."""
    schema = deepcopy({key: value for key, value in schema.items() if key != "$id"})
    for _, inner in parts(schema):
        if isinstance(reference := inner.get("$ref"), str):
            inner["$ref"] = place + reference.removeprefix("#")
    return schema


def told(functions: Functions) -> str:
    """Return the text of the system message that lists the functions to choose from.

    Their parameters are left out, as they would fill a small context: the keys of the chosen
    function are written for the model, which only writes their values.
    """
    known = [f"{name}: {f['description']}" if f.get("description") else name
             for name, f in functions.items()]  # fmt: skip
    return "\n".join([CHOOSE, *known])


def beginning(name: str) -> str:
    """Return what stands before the arguments of a function that the model has chosen."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def written(call: Any, is_chosen: bool, where: str) -> str:
    """Return the text of a call that a client sends back, as the model wrote it.

    `is_chosen`: whether the model chose among several functions, and so wrote the name, too.
    `where`: the message's name in errors. Raises UserError if `call` is not a call.
    """
    name, arguments = (part(call, "function", key) for key in ("name", "arguments"))
    if isinstance(arguments, dict):  # as Ollama's clients have it
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(name, str) or not isinstance(arguments, str):
        form = '{"function": {"name": ..., "arguments": "..."}}'
        raise UserError(f"{where}: tool_calls must be a list of {form}")
    return beginning(name) + arguments + "}" if is_chosen else arguments


def called(messages: list) -> dict[str, str]:
    """Return the names of the functions that were called, by the ids of the calls."""
    lists = [part(message, "tool_calls") for message in messages]
    calls = [call for calls in lists if isinstance(calls, list) for call in calls]
    return {str(part(call, "id")): str(part(call, "function", "name")) for call in calls}


def returned(name: str | None, result: str) -> str:
    """Return a function's result as the model reads it.

    Without the name, a model takes the result for the user's words and replies with another call.
    """
    result = result if result.strip() else NOTHING
    return f"{name} returned: {result}" if name else result


def part(value: Any, *keys: str) -> Any:
    """Return what lies in a JSON value under these keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


class CallWriter:
    """A reply that is a call, in parts as they are written.

    >>> writer = CallWriter(["add", "now"])
    >>> writer.push('{"name": "add", "argu')
    >>> writer.push('ments": {"a": 1}')["function"]
    {'name': 'add', 'arguments': '{"a": 1'}
    >>> writer.push("}")["function"]
    {'arguments': '}'}
    """

    def __init__(self, names: Collection[str]):
        is_chosen = len(names) > 1
        # What the reply begins with, and the number of characters after the arguments.
        self.heads = {beginning(name) if is_chosen else "": name for name in names}
        self.n_after = len("}") if is_chosen else 0
        self.text, self.n_told, self.name = "", 0, ""

    def push(self, text: str) -> Json | None:
        """Return what is new of the call, in OpenAI's form; None while its name is not written."""
        self.text += text
        new: Json = {}
        if not self.name:
            head = next((head for head in self.heads if self.text.startswith(head)), None)
            if head is None:
                return None
            self.name, self.n_told = self.heads[head], len(head)
            new = {"id": f"call_{uuid.uuid4().hex}", "type": "function"}
        end = max(len(self.text) - self.n_after, self.n_told)
        function = {"name": self.name} if new else {}
        function["arguments"] = self.text[self.n_told : end]
        self.n_told = end
        return {**new, "function": function}
