"""/v1/responses: the replies of /v1/chat/completions, in the form of OpenAI's newer address."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
import requests
from api_server import HELLO, SECONDS, error_of, served

from gptcore.api.access import Access
from gptcore.api.bodies import read_chat
from gptcore.api.document import openapi
from gptcore.api.responses import read_response
from gptcore.checks import UserError
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.engine.slots import Slots
from gptcore.model import OnnxModel

Json = dict[str, Any]
Post = Callable[..., requests.Response]
ASKED: Json = {"input": HELLO, "temperature": 0}
KIND = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"]}
TOOLS = [
    {"type": "web_search"},
    {"type": "function", "name": "now", "parameters": {}, "strict": True},
    {"type": "function", "name": "find", "description": "Finds a pet.", "parameters": KIND},
]


@pytest.fixture(scope="module")
def post(nano: OnnxModel) -> Iterator[Post]:
    with served(nano, Access()) as address:

        def send(**body: Any) -> requests.Response:
            return requests.post(f"{address}/v1/responses", json=body, timeout=SECONDS)

        yield send


def streamed(answer: requests.Response) -> list[Json]:
    """The events of a stream, whose lines have the names and numbers that clients read."""
    blocks = [block.split("\n") for block in answer.content.decode().split("\n\n") if block]
    told = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [f"event: {event['type']}" for event in told] == [name for name, _ in blocks]
    assert [event["sequence_number"] for event in told] == [*range(len(told))]
    return told


def timeless(response: Json) -> Json:
    """A response without what differs between two calls."""
    (item,) = response["output"]
    drawn = {"id": "", "created_at": 0}
    return {**response, **drawn, "output": [item | {"id": "", "call_id": ""}]}


def test_a_response_holds_the_reply_to_the_conversation(post: Post, nano: OnnxModel) -> None:
    pieces = [*chat(nano, HELLO, Sampling(temperature=0), max_tokens=512)]
    told = post(**ASKED, metadata={"a": "b"}).json()
    (item,) = told["output"]
    (content,) = item["content"]
    assert content["text"] == "".join(piece.text for piece in pieces)
    assert told["status"] == item["status"] == "completed" and item["role"] == "assistant"
    assert told["usage"]["input_tokens"] == pieces[-1].n_prompt
    assert told["usage"]["output_tokens"] == pieces[-1].n_new
    # OpenAI's package refuses a response without each of these, where it checks one.
    assert told["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert told["metadata"] == {"a": "b"} and told["temperature"] == 0
    assert post(**ASKED | {"input": HELLO[0]["content"]}).json()["output"][0]["content"] == [
        content
    ]


def test_a_stream_holds_the_same_in_parts(post: Post) -> None:
    told = streamed(post(**ASKED, stream=True))
    kinds = [event["type"].removeprefix("response.") for event in told]
    n = kinds.count("output_text.delta")
    assert n > 1 and kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * n,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    text = "".join(event.get("delta", "") for event in told)
    last = told[-1]["response"]
    assert text == told[-4]["text"] == last["output"][0]["content"][0]["text"]
    assert timeless(last) == timeless(post(**ASKED).json())
    items = {event["item_id"] for event in told if "item_id" in event}
    assert items == {event["item"]["id"] for event in told if "item" in event}
    assert told[0]["response"] | {"output": []} == told[0]["response"]
    assert told[0]["response"]["id"] == last["id"] and told[0]["response"]["usage"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_cut_is_incomplete(post: Post, stream: bool) -> None:
    answer = post(**ASKED, max_output_tokens=3, stream=stream)
    told = streamed(answer)[-1]["response"] if stream else answer.json()
    assert told["status"] == told["output"][0]["status"] == "incomplete"
    assert told["incomplete_details"] == {"reason": "max_output_tokens"}
    assert told["usage"]["output_tokens"] == 3


def test_the_input_is_read_as_the_messages_of_a_chat(nano: OnnxModel) -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Speak of pets."},
        {"type": None, "role": "user", "content": [{"type": "input_text", "text": "Which pet?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"kind": "cat"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Tom"},
    ]
    messages = [
        {"role": "system", "content": "Be kind.\n\nSpeak of pets."},
        {"role": "user", "content": "Which pet?"},
        {"role": "assistant", "content": '{"kind": "cat"}'},
        {"role": "user", "content": "find returned: Tom"},
    ]
    asked = {"input": items, "instructions": "Be kind.", "max_output_tokens": 9, "seed": 3}
    theirs = read_response(asked | {"temperature": 0.5}, nano).requests
    same = {"messages": messages, "max_tokens": 9, "seed": 3, "temperature": 0.5}
    assert theirs == read_chat(same, nano).requests


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_json_of_the_schema(post: Post, stream: bool) -> None:
    form = {"type": "json_schema", "name": "pet", "schema": KIND, "strict": True}
    answer = post(**ASKED, text={"format": form}, stream=stream)
    told = streamed(answer)[-1]["response"] if stream else answer.json()
    jsonschema.validate(json.loads(told["output"][0]["content"][0]["text"]), KIND)
    assert told["text"] == {"format": form}


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("required", None),
        ({"type": "function", "name": "find"}, "find"),
        ({"type": "allowed_tools", "mode": "required", "tools": TOOLS[1:2]}, "now"),
    ],
)
def test_a_demanded_call_is_an_item_of_its_own(post: Post, choice: Any, name: str | None) -> None:
    asked = {**ASKED, "tools": TOOLS, "tool_choice": choice}
    whole = post(**asked).json()
    told = streamed(post(**asked, stream=True))
    assert timeless(told[-1]["response"]) == timeless(whole)
    (item,) = whole["output"]
    assert item["type"] == "function_call" and item["name"] in ([name] if name else ["now", "find"])
    assert isinstance(json.loads(item["arguments"]), dict)
    begun, done = told[2], told[-3]
    assert begun["item"]["name"] == item["name"] and begun["item"]["arguments"] == ""
    deltas = [e["delta"] for e in told if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == done["arguments"] == item["arguments"]
    # Clients send the item back as it is.
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "Tom"}
    assert post(input=[*HELLO, item, result], tools=TOOLS).json()["output"][0]["type"] == "message"


def test_probabilities_are_those_of_a_chat(post: Post, nano: OnnxModel) -> None:
    asked = {**ASKED, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = post(**asked, max_output_tokens=4).json()["output"][0]["content"][0]["logprobs"]
    assert len(whole) == 4 and all(len(token["top_logprobs"]) == 2 for token in whole)
    assert whole[0]["logprob"] == max(top["logprob"] for top in whole[0]["top_logprobs"])
    told = streamed(post(**asked, max_output_tokens=4, stream=True))
    assert [token for event in told[4:-4] for token in event["logprobs"]] == whole
    assert post(**ASKED, top_logprobs=2).json()["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": None}, "input must be a text, or a list"),
        ({"input": []}, "input must be a text, or a list"),
        ({"input": ["Hi"]}, "input 0 is not an object"),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "input 0 is of the type 'item_refer"),
        ({"input": [*HELLO, {"role": "cat", "content": "Meow"}]}, "input 1 has the unknown role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input 0: its conte"),
        (
            {"input": [{"type": "function_call", "name": "f", "arguments": {}}]},
            "input 0: a function_call needs a name and arguments",
        ),
        ({"instructions": 3}, "instructions=3 is not of type str"),
        ({"instructions": 0}, "instructions=0 is not of type str"),
        ({"metadata": 3}, "metadata=3 is not of type dict"),
        ({"metadata": {"a": 1}}, "metadata: a=1 is not of type str"),
        ({"metadata": {"y" * 999: 1}}, "yyy...=1 is not of type str"),
        ({"tools": "now"}, "tools='now' is not of type list"),
        ({"tools": [*TOOLS, 3]}, "tool 3=3 is not of type dict"),
        ({"top_logprobs": "y" * 999}, "yyy... must be a whole number from 0 to 20"),
        ({"previous_response_id": "r"}, "send the whole conversation as input"),
        ({"background": True}, "leave it out, or take stream"),
        ({"max_output_tokens": 0}, "max_output_tokens=0 must be a whole number of at least 1"),
        ({"n": 2}, "n=2: /v1/responses returns one"),
        ({"text": "json"}, "text='json' is not of type dict"),
        ({"text": {"format": "json"}}, "text.format must be an object"),
        ({"text": {"format": {"type": "xml"}}}, "unknown text.format.type 'xml'"),
        ({"text": {"format": {"type": "x" * 999}}}, "xxx...: known are text"),
        (
            {"text": {"format": {"type": "json_schema"}}},
            "text.format of the type json_schema needs",
        ),
        ({"include": "logprobs"}, "include='logprobs' is not of type list"),
        ({"tools": TOOLS[:1], "tool_choice": "required"}, "tool_choice names no function"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice names no function"),
        ({"tools": TOOLS, "tool_choice": {"type": "custom", "name": "now"}}, "names no function"),
    ],
)
def test_a_wrong_call_is_refused_with_the_fields_name(
    nano: OnnxModel, change: Json, message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        read_response(ASKED | change, nano)


def test_an_error_before_and_in_a_stream(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "input must be" in error_of(post(input=[], stream=True), 400)
    step, n_steps = Slots.step, 0

    def failing(slots: Slots, ids: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        if n_steps > 3:
            raise RuntimeError("the disk is on fire")
        return step(slots, ids)

    monkeypatch.setattr(Slots, "step", failing)
    last = streamed(post(**ASKED, stream=True))[-1]
    assert last["type"] == "error" and last["code"] == "server_error"
    assert "fire" not in last["message"]


def test_no_response_is_kept(post: Post, nano: OnnxModel) -> None:
    with served(nano, Access()) as address:
        answer = requests.get(f"{address}/v1/responses/resp_1", timeout=SECONDS)
    assert "this API has no /v1/responses/resp_1" in error_of(answer, 404)
    assert post(**ASKED, store=True, max_output_tokens=1).json()["store"] is False


def test_the_document_has_what_is_read(post: Post) -> None:
    content = openapi(["nano"])["paths"]["/v1/responses"]["post"]["requestBody"]["content"]
    document = jsonschema.Draft202012Validator(content["application/json"]["schema"])
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "Tom"}
    body = ASKED | {"input": [*HELLO, call, result], "tools": TOOLS, "max_output_tokens": 1}
    assert document.is_valid(body) and post(**body).ok
    some = {"type": "allowed_tools", "mode": "auto", "tools": TOOLS[1:2]}
    assert document.is_valid(body | {"tool_choice": some, "metadata": {"a": "b"}})
    assert not document.is_valid(body | {"metadata": {"a": 1}})
    for wrong in ([], [{"role": "cat", "content": ""}], [{"type": "item_reference", "id": "i"}]):
        assert not document.is_valid(body | {"input": wrong})
