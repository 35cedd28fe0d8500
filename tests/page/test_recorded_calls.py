"""What other programs sent to `python app.py`, recorded: word for word but the model's name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests
from api_server import SECONDS, error_of, events, served

from gptcore.api.access import Access
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel

CALLS = json.loads(Path(__file__).with_name("client_calls.json").read_text(encoding="utf-8"))
Post = Callable[..., requests.Response]


@pytest.fixture(scope="module")
def post(nano: OnnxModel) -> Iterator[Post]:
    """Posts what a client sent, with settings of ours."""
    with served(nano, Access()) as address:

        def send(client: str, **more: Any) -> requests.Response:
            url = f"{address}/v1/chat/completions"
            return requests.post(url, json=CALLS[client] | more, timeout=SECONDS)

        yield send


@pytest.mark.parametrize(
    "client",
    [
        "instructor 1.17.0 in the mode JSON_SCHEMA",
        "instructor 1.17.0 with a tagged union",
        "llm 0.36 with --schema",
    ],
)
def test_the_schema_of_a_class_gets_replies_of_it(post: Post, client: str) -> None:
    """The model's own words may go on: a `name` without a bound does so in one of several."""
    schema = CALLS[client]["response_format"]["json_schema"]["schema"]
    choices = post(client, n=8, seed=1).json()["choices"]
    ended = [choice for choice in choices if choice["finish_reason"] == "stop"]
    assert len(ended) > 5
    for choice in ended:
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)


def test_a_record_of_zod_is_not_refused(post: Post) -> None:
    assert post("AI SDK 6.0.326 with a record", max_tokens=1).status_code == 200


@pytest.mark.parametrize(
    "client",
    [
        "langgraph 1.2.24 with a class as an agent's answer",
        "semantic-kernel 1.45.0 with a system message alone",
    ],
)
def test_a_call_whose_last_message_is_not_the_users_is_answered(post: Post, client: str) -> None:
    assert post(client, max_tokens=1).status_code == 200


@pytest.mark.parametrize(
    "client",
    [
        "outlines 1.3.3 with a class, for vLLM",
        "outlines 1.3.3 with a regular expression, for SGLang",
    ],
)
def test_what_binds_the_replies_of_other_servers_is_refused(post: Post, client: str) -> None:
    """An unbound text would be taken for a bound one."""
    assert "only response_format binds a reply" in error_of(post(client), 400)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_two_prompts_of_the_system_are_one(post: Post, nano: OnnxModel, order: tuple) -> None:
    """Wherever they are: programs tell the model something within a conversation, too."""
    client = "pydantic-ai 2.68.0 with instructions and a system prompt"
    sent = [CALLS[client]["messages"][i] for i in order]
    answer = post(client, messages=sent, temperature=0, max_tokens=20).json()
    messages = [{"role": "system", "content": "You are Bob.\n\nBe kind."},
                {"role": "user", "content": "Hello!"}]  # fmt: skip
    text = "".join(p.text for p in chat(nano, messages, Sampling(temperature=0), 20))
    assert answer["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_demanded_function_is_called_with_arguments_of_its_schema(
    post: Post, choice: str
) -> None:
    client = "pydantic-ai 2.68.0 with a class as its output"
    (tool,) = CALLS[client]["tools"]
    function = tool["function"]
    named = {"type": "function", "function": {"name": function["name"]}}
    more = {"tool_choice": choice if choice == "required" else named, "n": 8, "seed": 1}
    choices = post(client, **more).json()["choices"]
    ended = [one for one in choices if one["finish_reason"] == "tool_calls"]
    assert len(ended) > 5
    for one in ended:
        (call,) = one["message"]["tool_calls"]
        assert one["message"]["content"] is None and call["function"]["name"] == function["name"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), function["parameters"])


def test_a_call_in_a_stream_is_the_whole_ones(post: Post) -> None:
    client, more = "pydantic-ai 2.68.0 with a class as its output", {"temperature": 0, "seed": 1}
    whole = post(client, **more).json()["choices"][0]
    parts = [part["choices"][0] for part in events(post(client, **more | {"stream": True}))]
    calls = [call for part in parts for call in part["delta"].get("tool_calls", [])]
    (expected,) = whole["message"]["tool_calls"]
    assert [call["id"] for call in calls if "id" in call] == [calls[0]["id"]]
    assert calls[0]["function"]["name"] == expected["function"]["name"]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert arguments == expected["function"]["arguments"]
    assert parts[-1]["finish_reason"] == whole["finish_reason"]


def test_a_call_that_is_sent_back_with_its_result_is_answered(post: Post) -> None:
    client, more = "pydantic-ai 2.68.0 with a class as its output", {"seed": 1, "stop": ["}"]}
    choice = post(client, **more).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    if choice["finish_reason"] == "tool_calls":
        json.loads(call["function"]["arguments"])  # no stop text cuts them
    result = {"role": "tool", "tool_call_id": call["id"], "content": "The age is wrong."}
    messages = [*CALLS[client]["messages"], choice["message"], result]
    assert post(client, messages=messages).json()["choices"][0]["message"]["tool_calls"]


def test_a_function_without_parameters_is_called_with_none(post: Post) -> None:
    client = "pydantic-ai 2.68.0 with a class as its output"
    tools = [{"type": "function", "function": {"name": "ping"}}]
    choice = post(client, tools=tools).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {}
