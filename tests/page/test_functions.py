"""Calls of functions: which one is demanded, what the model is told, and what clients get."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import requests
from api_server import HELLO, SECONDS, served

from gptcore.api.access import Access
from gptcore.api.bodies import read_chat
from gptcore.api.functions import CallWriter, demanded, reply_schema
from gptcore.checks import TooLong, UserError
from gptcore.model import OnnxModel

PLACE = {
    "$defs": {"kind": {"enum": ["town", "lake"]}},
    "type": "object",
    "properties": {"kind": {"$ref": "#/$defs/kind"}, "name": {"type": "string", "maxLength": 5}},
    "required": ["kind", "name"],
}
TREE = {  # refers to itself
    "type": "object",
    "properties": {"leaves": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
    "required": ["leaves"],
}
# A value that looks like a reference, and an address of the schema itself.
VALUE = {
    "$id": "https://example.com/size",
    "type": "object",
    "properties": {"$ref": {"const": {"$ref": "#/x"}}},
    "required": ["$ref"],
}
SCHEMAS = {"find-place": PLACE, "grow.tree": TREE, 'Größe/~% "x"': VALUE}
ABOUT = {"find-place": "Finds a town or a lake."}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": ABOUT.get(name), "parameters": schema},
    }
    for name, schema in SCHEMAS.items()
]
ASKED = {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 150}


@pytest.fixture(scope="module")
def url(nano: OnnxModel) -> Iterator[str]:
    with served(nano, Access()) as address:
        yield f"{address}/v1/chat/completions"


def test_the_model_chooses_among_several_functions(url: str) -> None:
    names = set()
    for seed in range(6):
        body = ASKED | {"temperature": 2, "top_k": 0, "seed": seed}
        (choice,) = requests.post(url, json=body, timeout=SECONDS).json()["choices"]
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        name, arguments = (call["function"][key] for key in ("name", "arguments"))
        names.add(name)
        if choice["finish_reason"] == "tool_calls":
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        whole = (name, arguments, choice["finish_reason"])
        assert streamed(url, body) == whole
    assert len(names) > 1


def streamed(url: str, body: dict[str, Any]) -> tuple[str, str, str]:
    """Ask for a stream; the function's name, its arguments, and why the reply ended."""
    answer = requests.post(url, json=body | {"stream": True}, timeout=SECONDS)
    lines = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: {")]
    choices = [json.loads(line)["choices"][0] for line in lines]
    assert choices[0]["delta"] == {"role": "assistant", "content": None}
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    assert {call["index"] for call in calls} == {0}
    assert [("id" in call, "name" in call["function"]) for call in calls] == [
        (i == 0, i == 0) for i in range(len(calls))
    ]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    return calls[0]["function"]["name"], arguments, choices[-1]["finish_reason"]


def test_every_function_can_be_called(url: str) -> None:
    """Where its name alone is left to choose, though the others are there."""
    for name in SCHEMAS:
        choice = {"type": "function", "function": {"name": name}}
        answer = requests.post(url, json=ASKED | {"tool_choice": choice}, timeout=SECONDS)
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == name


def test_a_reply_that_is_cut_before_its_name_calls_nothing(url: str) -> None:
    body = ASKED | {"max_tokens": 2}
    (choice,) = requests.post(url, json=body, timeout=SECONDS).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}


def test_the_functions_are_told_and_calls_are_read_as_they_were_written(nano: OnnxModel) -> None:
    called = {"id": "c", "function": {"name": "find-place", "arguments": '{"kind": "lake"}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "none"},
    ]
    (request,) = read_chat(ASKED | {"messages": messages}, nano).requests
    prompt = nano.tokenizer.decode(request.ids)
    assert "Be kind.\n\nAnswer by a call, " in prompt
    assert "functions:\nfind-place: Finds a town or a lake.\ngrow.tree\n" in prompt
    assert '{"name": "find-place", "arguments": {"kind": "lake"}}' in prompt
    (request,) = read_chat({"messages": messages, "tools": TOOLS}, nano).requests
    prompt = nano.tokenizer.decode(request.ids)
    assert "Answer by" not in prompt and '{"kind": "lake"}' in prompt
    many = [{"function": {"name": f"f{i}", "description": "Something. " * 9}} for i in range(99)]
    with pytest.raises(TooLong, match="the system message is too long"):
        read_chat(ASKED | {"tools": many}, nano)


def test_a_choice_that_the_tools_do_not_have_is_refused() -> None:
    def allowed(*names: str) -> dict[str, Any]:
        tools = [{"function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}

    assert [*demanded(ASKED | {"tool_choice": allowed("grow.tree")})] == ["grow.tree"]
    unknown = "any", allowed("now"), {"allowed_tools": 5}, {"function": {"name": "now"}}
    for choice in (*unknown, {"function": 1}):
        with pytest.raises(UserError, match="names no function of tools"):
            demanded(ASKED | {"tool_choice": choice})
    for mode, tools, said in (
        ("any", TOOLS, "unknown mode of tool_choice 'any': known are auto, none, required"),
        (None, TOOLS, "unknown mode of tool_choice None"),
        ("required", [], "tools of tool_choice must be a list that is not empty"),
        ("required", [{}], "each function of tools of tool_choice must have a name"),
    ):
        with pytest.raises(UserError, match=said):
            some = {"type": "allowed_tools", "mode": mode, "tools": tools}
            demanded(ASKED | {"tool_choice": some})
    nameless = [{"function": {"name": ""}}]
    for tools, said in (
        (None, "that is not empty"),
        ([{}], "each function of tools"),
        ([{"function": {"name": "a\x7fb"}}], "a name, of printable characters"),
        (nameless, "each function of tools"),
        (TOOLS + TOOLS, "two functions named 'find-place'"),
    ):
        with pytest.raises(UserError, match=said):
            demanded({"tool_choice": "required", "tools": tools})


def test_a_call_in_any_pieces_is_the_same_call() -> None:
    arguments = '{"leaves": [{"leaves": []}], "said": "}}"}'
    text = f'{{"name": "grow.tree", "arguments": {arguments}}}'
    for size in range(1, len(text) + 1):
        writer = CallWriter(SCHEMAS)
        parts = [writer.push(text[i : i + size]) for i in range(0, len(text), size)]
        told = [part["function"] for part in parts if part]
        assert "".join(function["arguments"] for function in told) == arguments
        assert [function.get("name") for function in told[:1]] == ["grow.tree"]
    assert reply_schema({"f": {"name": "f"}}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("others", [{}, {"g": {"name": "g"}}])
def test_parameters_that_are_no_schema_are_refused_by_the_name_of_the_function(
    others: dict[str, Any],
) -> None:
    remote = {"$ref": "https://example.com/x"}
    for wrong in ([], False, 0, "text", True, remote, {"properties": {"a": remote}}):
        with pytest.raises(UserError, match="parameters of 'f': schema"):
            reply_schema({"f": {"name": "f", "parameters": wrong}} | others)
    deep = json.loads('{"items": ' * 900 + "{}" + "}" * 900)
    with pytest.raises(UserError, match="parameters of 'f': the schema is nested too deeply"):
        reply_schema({"f": {"name": "f", "parameters": deep}} | others)


def test_what_the_parameters_refuse_in_compiling_is_named_by_the_function(url: str) -> None:
    function = {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}
    body = ASKED | {"tools": [*TOOLS, {"function": function}]}
    answer = requests.post(url, json=body, timeout=SECONDS)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("schema/$defs/f/properties/a: ")


def test_the_text_beside_calls_several_calls_and_the_results_of_each_are_read(
    nano: OnnxModel,
) -> None:
    calls = [{"id": n, "function": {"name": n, "arguments": f'{{"a": {n}}}'}} for n in "12"]
    messages = [
        *HELLO,
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "2", "content": "found"},
        {"role": "tool", "tool_call_id": "1", "content": []},
        {"role": "tool", "tool_call_id": ["3"], "content": None},
    ]
    for body, told in (
        ({}, '{"a": 1}\n{"a": 2}'),
        (ASKED, '{"name": "1", "arguments": {"a": 1}}\n{"name": "2", "arguments": {"a": 2}}'),
    ):
        (request,) = read_chat(body | {"messages": messages}, nano).requests
        prompt = nano.tokenizer.decode(request.ids)
        assert f"I look.\n{told}" in prompt
        assert "2 returned: found1 returned: (nothing)(nothing)" in prompt
    for wrong in (1, {"function": {"name": "f", "arguments": 1}}):
        messages[1]["tool_calls"] = [wrong]
        with pytest.raises(UserError, match="message 1: tool_calls must be a list of"):
            read_chat({"messages": messages}, nano)
