"""The API's OpenAPI document (version 3.1), for tools that generate or test clients.

>>> sorted(openapi(["nano"])["paths"])
['/health', '/metrics', '/v1/chat/completions', '/v1/completions', '/v1/models', '/v1/responses']
"""

import typing
from collections.abc import Sequence
from types import NoneType
from typing import Any

from gptcore import __version__
from gptcore.api.access import REPLIES
from gptcore.api.bodies import FORMATS, MOST_TOP, OTHER_ROLES, Fields
from gptcore.engine.inputs import MOST_STOPS
from gptcore.engine.sampling import SETTINGS
from gptcore.text.chat_template import ROLES

Schema = dict[str, Any]

NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


def an_object(required: str, **properties: Schema) -> Schema:
    """Return the schema of an object; `required` are names of properties, with spaces."""
    return {"type": "object", "properties": properties, "required": required.split()}


def a_list(of: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": of, **more}


def nullable(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


TEXT: Schema = {"type": "string"}
IDS = a_list({"type": "integer", "minimum": 0}, minItems=1)
PART: Schema = {
    "type": "object",
    "properties": {"text": TEXT, "refusal": TEXT},
    "anyOf": [{"required": ["text"]}, {"required": ["refusal"]}],
}
ROLE: Schema = {"enum": [*ROLES, *OTHER_ROLES]}
CONTENT: Schema = {"anyOf": [TEXT, a_list(PART)]}
CALL = an_object(
    "function", function=an_object("arguments", arguments={"type": ["string", "object"]})
)
SAID = an_object("role content", role=ROLE, content=CONTENT)
CALLED = an_object(
    "role",
    role={"const": "assistant"},
    content={"type": "null"},
    tool_calls=a_list(CALL),
    refusal=nullable(TEXT),
)
STOPS = a_list({"type": "string", "minLength": 1}, maxItems=MOST_STOPS)
STOP: Schema = {"anyOf": [TEXT, STOPS, {"type": "null"}]}
TOP: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_TOP}
OBJECT: Schema = {"type": "object"}
BOUND = {"description": "what the reply must be: JSON, or JSON of a schema"}
TYPE: Schema = {"enum": [*FORMATS]}
FORM = an_object("schema", name=TEXT, schema=OBJECT)
FORMAT = nullable(an_object("type", type=TYPE, json_schema=FORM)) | BOUND
FUNCTION = an_object("name", name=TEXT, parameters=nullable(OBJECT))
NAMED = an_object("name", name=TEXT)
TOOL = an_object("function", function=FUNCTION)
MODE: Schema = {"enum": ["auto", "required"]}
CHOICES: Schema = {"enum": ["auto", "none", "required", None]}
ALLOWED = an_object("mode tools", mode=MODE, tools=a_list(TOOL, minItems=1))
CHAT: Schema = {
    "messages": a_list({"anyOf": [SAID, CALLED]}, minItems=1),
    "logprobs": {"type": ["boolean", "null"]},
    "top_logprobs": TOP,
    "response_format": FORMAT,
    "tools": nullable(a_list(TOOL)),
    "tool_choice": {
        "description": "with a function's name, or required: the reply calls one",
        "anyOf": [
            CHOICES,
            an_object("function", function=NAMED),
            an_object("allowed_tools", allowed_tools=ALLOWED),
        ],
    },
}
ITEM: Schema = {
    "anyOf": [
        an_object("role content", type={"const": "message"}, role=ROLE, content=CONTENT),
        an_object(
            "type name arguments",
            type={"const": "function_call"},
            call_id=TEXT,
            name=TEXT,
            arguments=TEXT,
        ),
        an_object(
            "type output", type={"const": "function_call_output"}, call_id=TEXT, output=CONTENT
        ),
    ]
}
TEXT_FORMAT = nullable(an_object("type", type=TYPE, schema=OBJECT)) | BOUND
FLAT_TOOL: Schema = {"anyOf": [FUNCTION, {"type": "object", "required": ["type"]}]}
FLAT_ALLOWED = an_object(
    "type mode tools",
    type={"const": "allowed_tools"},
    mode=MODE,
    tools=a_list(FLAT_TOOL, minItems=1),
)
RESPONSE: Schema = {
    "input": {"anyOf": [TEXT, a_list(ITEM, minItems=1)]},
    "instructions": nullable(TEXT),
    "include": nullable(a_list(TEXT)),
    "metadata": nullable(OBJECT) | {"additionalProperties": TEXT},
    "top_logprobs": TOP,
    "text": nullable(OBJECT) | {"properties": {"format": TEXT_FORMAT}},
    "tools": nullable(a_list(FLAT_TOOL)),
    "tool_choice": {
        "description": "with a function's name, or required: the response is its call",
        "anyOf": [CHOICES, NAMED, FLAT_ALLOWED],
    },
}
COMPLETION: Schema = {
    "prompt": {"anyOf": [TEXT, IDS, a_list({"anyOf": [TEXT, IDS]})]},
    "echo": {"type": ["boolean", "null"]},
    "logprobs": TOP,
}
REFUSALS = {
    "400": "wrong values",
    "401": "a key is needed",
    "403": "a page of another site asks",
    "404": "another model",
    "408": "the body came too slowly",
    "413": "too long",
    "421": "a host name that is not this server's",
    "429": "busy, or too often: see Retry-After",
    "503": "the model cannot be opened: see Retry-After",
}


def openapi(names: Sequence[str]) -> Schema:
    """Return the document of a server of the models of these names."""
    reply = "the reply to a conversation"
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenAI's protocol, by gptcore", "version": __version__},
        "paths": {
            "/v1/models": {"get": operation("the models' names")},
            "/v1/chat/completions": {"post": operation(reply, body(names, CHAT, "messages"))},
            "/v1/responses": {"post": operation(reply, body(names, RESPONSE, "input"))},
            "/v1/completions": {
                "post": operation("the continuation of a prompt", body(names, COMPLETION, "prompt"))
            },
            "/health": {"get": operation("whether calls are answered")},
            "/metrics": {"get": operation("counters for Prometheus")},
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def operation(summary: str, content: Schema | None = None) -> Schema:
    statuses = {"200": summary} | REFUSALS
    found: Schema = {"summary": summary}
    if content:
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found | {"responses": {status: {"description": d} for status, d in statuses.items()}}


def body(names: Sequence[str], own: Schema, required: str) -> Schema:
    """Return the schema of a call's JSON: its own fields, and those that endpoints share."""
    shared = {n: shared_field(n, kind) for n, kind in typing.get_type_hints(Fields).items()}
    model: Schema = {"enum": [*names, None]}
    return {"schema": an_object(required, **{"model": model, "stop": STOP} | shared | own)}


def shared_field(name: str, kind: Any) -> Schema:
    if typing.get_origin(kind) is dict:
        return {"type": ["object", "null"], "additionalProperties": {"type": ["boolean", "null"]}}
    kinds = typing.get_args(kind) or (kind,)
    schema: Schema = {"type": sorted({*(NAMES[k] for k in kinds), "null"})}
    for setting in SETTINGS:
        if setting.name == name:
            schema |= {"minimum": setting.lowest, "maximum": setting.highest}
            schema["description"] = setting.info
    return schema | ({"minimum": 1, "maximum": REPLIES} if name == "n" else {})
