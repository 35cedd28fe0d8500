"""The API's OpenAPI document (version 3.1), for tools that generate or test clients.

>>> sorted(openapi(["nano"])["paths"])
['/health', '/metrics', '/v1/chat/completions', '/v1/completions', '/v1/models', '/v1/responses']
"""

import typing
from collections.abc import Sequence
from dataclasses import fields
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
TEXT: Schema = {"type": "string"}
IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PART: Schema = {
    "type": "object",
    "properties": {"text": TEXT, "refusal": TEXT},
    "anyOf": [{"required": ["text"]}, {"required": ["refusal"]}],
}
ROLE: Schema = {"enum": [*ROLES, *OTHER_ROLES]}
CONTENT: Schema = {"anyOf": [TEXT, {"type": "array", "items": PART}]}
ARGUMENTS: Schema = {
    "type": "object",
    "properties": {"arguments": {"type": ["string", "object"]}},
    "required": ["arguments"],
}
CALL: Schema = {"type": "object", "properties": {"function": ARGUMENTS}, "required": ["function"]}
CALLS: Schema = {"type": "array", "items": CALL}
MESSAGE: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"role": ROLE, "content": CONTENT},
            "required": ["role", "content"],
        },
        {
            "type": "object",
            "properties": {
                "role": {"const": "assistant"},
                "content": {"type": "null"},
                "tool_calls": CALLS,
                "refusal": {"type": ["string", "null"]},
            },
            "required": ["role"],
        },
    ],
}
NEEDED: Schema = {"type": "string", "minLength": 1}
STOPS: Schema = {"type": "array", "items": NEEDED, "maxItems": MOST_STOPS}
STOP: Schema = {"anyOf": [TEXT, STOPS, {"type": "null"}]}
TOP: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_TOP}
FORMAT: Schema = {
    "type": ["object", "null"],
    "description": "what the reply must be: JSON, or JSON of a schema",
    "properties": {
        "type": {"enum": [*FORMATS]},
        "json_schema": {
            "type": "object",
            "properties": {"name": TEXT, "schema": {"type": "object"}},
            "required": ["schema"],
        },
    },
    "required": ["type"],
}
FUNCTION: Schema = {
    "type": "object",
    "properties": {"name": TEXT, "parameters": {"type": ["object", "null"]}},
    "required": ["name"],
}
NAMED: Schema = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
TOOL: Schema = {"type": "object", "properties": {"function": FUNCTION}, "required": ["function"]}
ALLOWED: Schema = {
    "type": "object",
    "properties": {
        "mode": {"enum": ["auto", "required"]},
        "tools": {"type": "array", "items": TOOL, "minItems": 1},
    },
    "required": ["mode", "tools"],
}
DEMANDED: Schema = {
    "description": "with a function's name, or required: the reply calls one",
    "anyOf": [
        {"enum": ["auto", "none", "required", None]},
        {"type": "object", "properties": {"function": NAMED}, "required": ["function"]},
        {"type": "object", "properties": {"allowed_tools": ALLOWED}, "required": ["allowed_tools"]},
    ],
}
CHAT: Schema = {
    "messages": {"type": "array", "items": MESSAGE, "minItems": 1},
    "logprobs": {"type": ["boolean", "null"]},
    "top_logprobs": TOP,
    "response_format": FORMAT,
    "tools": {"type": ["array", "null"], "items": TOOL},
    "tool_choice": DEMANDED,
}
ITEM: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"type": {"const": "message"}, "role": ROLE, "content": CONTENT},
            "required": ["role", "content"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "function_call"},
                "call_id": TEXT,
                "name": TEXT,
                "arguments": TEXT,
            },
            "required": ["type", "name", "arguments"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "function_call_output"},
                "call_id": TEXT,
                "output": CONTENT,
            },
            "required": ["type", "output"],
        },
    ]
}
TEXT_FORMAT: Schema = {
    "type": ["object", "null"],
    "description": "what the reply must be: JSON, or JSON of a schema",
    "properties": {"type": {"enum": [*FORMATS]}, "schema": {"type": "object"}},
    "required": ["type"],
}
FLAT_TOOL: Schema = {"anyOf": [FUNCTION, {"type": "object", "required": ["type"]}]}
FLAT_ALLOWED: Schema = {
    "type": "object",
    "properties": {
        "type": {"const": "allowed_tools"},
        "mode": ALLOWED["properties"]["mode"],
        "tools": {"type": "array", "items": FLAT_TOOL, "minItems": 1},
    },
    "required": ["type", "mode", "tools"],
}
RESPONSE: Schema = {
    "input": {"anyOf": [TEXT, {"type": "array", "items": ITEM, "minItems": 1}]},
    "instructions": {"type": ["string", "null"]},
    "include": {"type": ["array", "null"], "items": TEXT},
    "metadata": {"type": ["object", "null"], "additionalProperties": TEXT},
    "top_logprobs": TOP,
    "text": {"type": ["object", "null"], "properties": {"format": TEXT_FORMAT}},
    "tools": {"type": ["array", "null"], "items": FLAT_TOOL},
    "tool_choice": {
        "description": "with a function's name, or required: the response is its call",
        "anyOf": [{"enum": ["auto", "none", "required", None]}, NAMED, FLAT_ALLOWED],
    },
}
COMPLETION: Schema = {
    "prompt": {"anyOf": [TEXT, IDS, {"type": "array", "items": {"anyOf": [TEXT, IDS]}}]},
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
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenAI's protocol, by gptcore", "version": __version__},
        "paths": {
            "/v1/models": {"get": operation("the models' names")},
            "/v1/chat/completions": {
                "post": operation("the reply to a conversation", body(names, CHAT, "messages"))
            },
            "/v1/responses": {
                "post": operation("the reply to a conversation", body(names, RESPONSE, "input"))
            },
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
    types = typing.get_type_hints(Fields)
    shared = {f.name: shared_field(f.name, types[f.name]) for f in fields(Fields)}
    return {
        "schema": {
            "type": "object",
            "properties": {"model": {"enum": [*names, None]}, "stop": STOP} | shared | own,
            "required": [required],
        }
    }


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
