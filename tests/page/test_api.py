"""The API over real connections: what clients of OpenAI's send, and what they get."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import jsonschema
import numpy as np
import pytest
import requests
from api_server import HELLO, SECONDS, error_of, events, served, with_slots
from conftest import ROOT, until

import gptcore.api.routes
from gptcore.api.access import Access
from gptcore.api.bodies import read_format, read_message
from gptcore.api.document import REFUSALS, openapi
from gptcore.api.forms import token_name
from gptcore.api.routes import written
from gptcore.checks import UserError
from gptcore.engine.generate import Piece, chat
from gptcore.engine.sampling import Sampling, log_softmax
from gptcore.engine.slots import Slots
from gptcore.model import OnnxModel
from gptcore.text.chat_template import render
from gptcore.text.tokenizer import Tokenizer

TOOLS = [{"type": "function", "function": {"name": name}} for name in "ab"]


@pytest.fixture(scope="module")
def url(nano: OnnxModel) -> Iterator[str]:
    with served(nano, Access()) as address:
        yield address


@pytest.fixture
def post(url: str) -> Callable[..., requests.Response]:
    """Posts a body to the chat's or the completions' address."""

    def send(kind: str = "chat/completions", **body: Any) -> requests.Response:
        return requests.post(f"{url}/v1/{kind}", json=body, timeout=SECONDS)

    return send


def expected(model: OnnxModel, messages: list, **options: Any) -> str:
    return "".join(piece.text for piece in chat(model, messages, **options))


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(0.9, top_k=0, seed=5)])
def test_a_reply_is_what_the_model_says(post, nano: OnnxModel, sampling: Sampling) -> None:
    text = expected(nano, HELLO, sampling=sampling, max_tokens=40)
    asked = {"temperature": sampling.temperature, "top_k": sampling.top_k, "seed": sampling.seed}
    answer = post(messages=HELLO, max_tokens=40, **asked).json()
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] in ("stop", "length")
    prompt = render(HELLO, nano.tokenizer, prompt=True)
    n_new = answer["usage"]["completion_tokens"]
    assert answer["usage"] == {
        "prompt_tokens": len(prompt), "completion_tokens": n_new,
        "total_tokens": len(prompt) + n_new,
    }  # fmt: skip
    assert answer["object"] == "chat.completion" and answer["model"] == nano.bundle.name


def test_a_stream_holds_the_same_in_parts(post, nano: OnnxModel) -> None:
    text = expected(nano, HELLO, sampling=Sampling(temperature=0), max_tokens=40)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    parts = events(post(messages=HELLO, max_tokens=40, temperature=0, **options))
    *parts, usage = parts
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] > 0
    assert [part["usage"] for part in parts] == [None] * len(parts)
    choices = [part["choices"][0] for part in parts]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in choices) == text
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1) and reasons[-1] in ("stop", "length")
    assert choices[-1]["delta"] == {}, "some clients read no text beside a reason"
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({part["id"] for part in parts}) == 1


@pytest.mark.parametrize(
    "body", [{"messages": HELLO}, {"prompt": "Hello"}], ids=["chat", "completion"]
)
def test_the_first_words_of_a_stream_arrive_while_the_rest_is_written(
    url: str, monkeypatch: pytest.MonkeyPatch, body: dict
) -> None:
    written = Event()

    async def held(*_: Any) -> AsyncIterator[tuple[int, Piece]]:
        yield 0, Piece("Hel", 3, 1)
        await asyncio.to_thread(written.wait, SECONDS)
        yield 0, Piece("lo", 3, 2, "end")

    monkeypatch.setattr(gptcore.api.routes, "answers", held)
    kind = "chat/completions" if "messages" in body else "completions"
    asked = {"url": f"{url}/v1/{kind}", "json": body | {"stream": True}}
    try:
        with requests.post(**asked, stream=True, timeout=SECONDS) as answer:
            lines = answer.iter_lines()
            assert any(b"Hel" in line for line in lines)
            written.set()
            assert any(b'"lo"' in line for line in lines)
    finally:
        written.set()


def test_no_event_has_what_some_readers_take_for_the_end_of_a_line() -> None:
    said = "a\x85b\u2028c\u2029d"
    [name, data] = written([{"type": "x", "text": said}]).strip().splitlines()
    assert (name, json.loads(data.removeprefix("data: "))["text"]) == ("event: x", said)


def test_without_being_asked_for_a_stream_has_no_usage(post) -> None:
    parts = events(post(messages=HELLO, max_tokens=3, stream=True))
    assert all(part["choices"] and "usage" not in part for part in parts)


def test_a_conversation_with_parts_and_a_system_prompt_is_read_as_it_is(post, nano) -> None:
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "My name "},
                                     {"type": "text", "text": "is Ada."}]},
        {"role": "assistant", "content": "Hello, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ]  # fmt: skip
    plain = [{"role": "system", "content": "Be kind."},
             {"role": "user", "content": "My name is Ada."}, *messages[2:]]  # fmt: skip
    answer = post(messages=messages, temperature=0, max_tokens=20).json()
    text = expected(nano, plain, sampling=Sampling(temperature=0), max_tokens=20)
    assert answer["choices"][0]["message"]["content"] == text


def test_several_replies_follow_their_own_seeds(post, nano: OnnxModel) -> None:
    answer = post(messages=HELLO, n=3, seed=7, temperature=1.2, max_tokens=20).json()
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert texts == [
        expected(nano, HELLO, sampling=Sampling(1.2, seed=seed), max_tokens=20)
        for seed in (7, 8, 9)
    ]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["prompt_tokens"] == len(render(HELLO, nano.tokenizer, prompt=True))


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_the_reply_and_none_of_it_is_sent(post, nano, stream: bool) -> None:
    ask = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0}
    whole = post(**ask).json()["choices"][0]["message"]["content"]
    stop = whole[20:28]
    answer = post(**ask, stop=["never said", stop], stream=stream)
    if stream:
        parts = [part["choices"][0] for part in events(answer)]
        text, reason = "".join(p["delta"].get("content", "") for p in parts), parts[-1]
    else:
        reason = answer.json()["choices"][0]
        text = reason["message"]["content"]
    assert text == whole[: whole.index(stop)] and reason["finish_reason"] == "stop"


def test_an_echo_gives_the_probability_of_every_token_of_the_prompt(post, nano) -> None:
    """lm-eval scores texts this way; the probabilities are those of the graph itself."""
    prompts = [np.random.default_rng(i).integers(0, 256, 40 * i + 2).tolist() for i in range(3)]
    answer = post("completions", prompt=prompts, echo=True, max_tokens=1, logprobs=2,
                  temperature=0).json()  # fmt: skip
    session = nano.session()
    for choice, ids in zip(answer["choices"], prompts):
        session.slots.cut(0, 0)
        log_p = log_softmax(session.slots.read(0, ids, first=0))
        told = choice["logprobs"]
        assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
        wanted = [log_p[i, token] for i, token in enumerate(ids[1:])]
        assert np.allclose(told["token_logprobs"][1 : len(ids)], wanted, atol=1e-4)
        best = [max(top.values()) for top in told["top_logprobs"][1 : len(ids)]]
        assert np.allclose(best, log_p[:-1].max(1), atol=1e-4)
        lengths = {len(told[key]) for key in told}
        assert lengths == {len(ids) + len(told["tokens"][len(ids) :])}
        assert choice["text"].startswith(nano.tokenizer.decode(ids))


def test_a_text_that_ends_at_once_has_the_probability_of_its_end(post, nano) -> None:
    """lm-eval leaves out the last probability, which is not the prompt's."""
    pieces = list(chat(nano, HELLO, Sampling(temperature=0), 200))
    reply = [i for piece in pieces for i in piece.token_ids]
    ids = [*render(HELLO, nano.tokenizer, prompt=True), *reply]
    ask = {"prompt": ids, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    (choice,) = post("completions", **ask).json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"][len(ids) :] == ["<|end|>"]
    assert choice["text"].endswith(nano.tokenizer.decode(reply))


def test_a_prompt_may_be_a_text_or_ids_and_an_echo_may_write_nothing(post, nano) -> None:
    answer = post("completions", prompt="Once upon", echo=True, max_tokens=0, logprobs=0).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Once upon", "length")
    assert answer["usage"]["completion_tokens"] == 0
    ids = [nano.tokenizer.special["<|endoftext|>"], *nano.tokenizer.encode("Once upon")]
    same = [
        post("completions", prompt=prompt, temperature=0).json()["choices"][0]["text"]
        for prompt in ("Once upon", ids)
    ]
    assert same[0] == same[1] != ""


def test_the_probabilities_of_a_chat_are_those_of_its_tokens(post, nano: OnnxModel) -> None:
    answer = post(messages=HELLO, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3)
    tokens = answer.json()["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 5
    for token in tokens:
        top = token["top_logprobs"]
        assert len(top) == 3 and top[0]["token"] == token["token"], "greedily: the likeliest"
        assert top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"]
        assert bytes(token["bytes"]).decode() == token["token"]


PET = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 30}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}


def bound(schema: object) -> dict[str, Any]:
    form = {"name": "pet", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


@pytest.mark.parametrize("stream", [False, True])
def test_replies_with_a_schema_are_json_of_it_several_at_once(post, stream: bool) -> None:
    wanted = {"messages": HELLO, "max_tokens": 60, "n": 8, "temperature": 2, "top_k": 0, "seed": 3}
    answer = post(**wanted, **bound(PET), logprobs=True, top_logprobs=3, stream=stream)
    texts, reasons = [""] * 8, [None] * 8
    for event in events(answer) if stream else [answer.json()]:
        for choice in event["choices"]:
            said = choice["delta"] if stream else choice["message"]
            texts[choice["index"]] += said.get("content") or ""
            reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
            for token in (choice.get("logprobs") or {}).get("content") or ():
                assert len(token["top_logprobs"]) == 3
    assert reasons.count("stop") > 4  # an integer may be long
    for text in (text for text, reason in zip(texts, reasons) if reason == "stop"):
        jsonschema.validate(json.loads(text), PET)
    assert len(set(texts)) > 1


def test_a_json_object_is_one_and_a_text_is_what_it_is_without_a_form(post, nano) -> None:
    ask = {"messages": HELLO, "max_tokens": 300, "temperature": 1, "seed": 2}
    (choice,) = post(**ask, response_format={"type": "json_object"}).json()["choices"]
    assert choice["message"]["content"].startswith("{")
    assert read_format("response_format", {"type": "json_object"}) == {"type": "object"}
    (choice,) = post(**ask, response_format={"type": "text"}).json()["choices"]
    (free,) = post(**ask).json()["choices"]
    assert choice["message"] == free["message"]


def test_a_top_p_of_0_is_the_likeliest_token(post) -> None:
    ask = {"messages": HELLO, "max_tokens": 20}
    narrow = post(**ask, top_p=0, temperature=1).json()["choices"]
    assert narrow == post(**ask, temperature=0).json()["choices"]


def test_any_64_bits_are_a_seed_as_at_openai(post) -> None:
    ask = {"messages": HELLO, "max_tokens": 5, "temperature": 2, "top_k": 0}
    lowest, same = (post(**ask, seed=seed).json()["choices"] for seed in (-(2**63), 0))
    assert lowest == same
    assert len(post(**ask, seed=2**63 - 1, n=2).json()["choices"]) == 2


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "x" * 100_000}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x " * 1000}]}),
        ("completions", {"prompt": "x" * 10**6}),
        ("completions", {"prompt": [5] * 5000}),
        ("completions", {"prompt": [5] * 5000, "echo": True, "max_tokens": 0}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_exceeds_the_context_has_openais_code(post, kind: str, asked: dict) -> None:
    """LangChain raises ContextOverflowError for it."""
    answer = post(kind, **asked)
    assert "shorten it" in error_of(answer, 400)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_one_of_the_allowed_tools_may_be_demanded(post) -> None:
    def answer(mode: str) -> dict[str, Any]:
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": TOOLS[:1]}}
        asked = {"messages": HELLO, "tools": TOOLS, "tool_choice": choice, "max_tokens": 20}
        return post(**asked).json()["choices"][0]["message"]

    (call,) = answer("required")["tool_calls"]
    assert call["function"]["name"] == "a" and {*call} == {"id", "type", "function"}
    assert "tool_calls" not in answer("auto")


def test_both_endpoints_take_the_newer_name_of_the_limit(post) -> None:
    asked = {"chat/completions": {"messages": HELLO}, "completions": {"prompt": "A"}}
    for kind, body in asked.items():
        answer = post(kind, **body, max_completion_tokens=3, temperature=0).json()
        assert answer["usage"]["completion_tokens"] == 3


def test_an_echo_without_probabilities_has_none(post) -> None:
    (choice,) = post("completions", prompt="Hello", echo=True, max_tokens=2).json()["choices"]
    assert choice["text"].startswith("Hello") and choice["logprobs"] is None


def test_the_offsets_of_tokens_count_characters_also_after_several_tokens_of_one(post) -> None:
    asked = {"prompt": "Hi 🦜 ok", "echo": True, "logprobs": 0, "max_tokens": 1}
    (choice,) = post("completions", **asked).json()["choices"]
    told = choice["logprobs"]
    assert told["tokens"][-3:-1] == [" o", "k"] and told["tokens"][3].startswith("bytes:")
    assert told["text_offset"][:-1] == [0, 0, 2, 3, 3, 3, 3, 4, 6]  # the text's opening is hidden


def test_a_reply_that_the_time_ends_is_not_called_complete(
    slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptcore.engine.streams.REPLY_SECONDS", 1.0)
    wanted = {"messages": HELLO, "max_tokens": 1900, "temperature": 0}
    with served(slow_model, Access()) as address:
        url = f"{address}/v1/chat/completions"
        whole = requests.post(url, json=wanted, timeout=SECONDS).json()
        last = events(requests.post(url, json=wanted | {"stream": True}, timeout=SECONDS))[-1]
    assert whole["usage"]["completion_tokens"] < 1900
    assert whole["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["finish_reason"] == "length"


def test_a_request_that_waits_until_its_time_is_up_is_told_that_others_were_first(
    slow_model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"messages": HELLO, "max_tokens": 1900, "temperature": 0}
    model = with_slots(slow_model, 1)
    slots = model.engine.slots
    with served(model, Access()) as address, ExitStack() as open_for:
        url = f"{address}/v1/chat/completions"
        asked = requests.post(url, json=wanted | {"stream": True}, timeout=SECONDS, stream=True)
        first = open_for.enter_context(asked)
        lines = first.iter_lines()  # whose end, also as garbage, ends the connection
        next(lines)
        monkeypatch.setattr("gptcore.engine.streams.REPLY_SECONDS", 0.2)
        answer = requests.post(url, json=wanted, timeout=SECONDS)
        n_read = slots.n_read
        until(lambda: slots.n_read > n_read)  # the first one is being written still
    assert answer.status_code == 429
    assert (
        answer.json()["error"]["message"] == "the model wrote for others for 0 s: try again later"
    )


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.engine.streams.REPLY_SECONDS", 1.0)
    read = Slots.read

    def slow(slots: Slots, *values: Any, **named: Any) -> np.ndarray:
        time.sleep(0.4)
        return read(slots, *values, **named)

    monkeypatch.setattr(Slots, "read", slow)


@pytest.mark.parametrize("more", [{}, {"echo": True, "logprobs": 0}])
def test_who_is_alone_is_told_that_the_prompt_takes_too_long(
    slow_model: OnnxModel, slow_reading: None, more: dict
) -> None:
    with served(slow_model, Access()) as address:
        wanted = {"prompt": [5] * 1500, **more}
        answer = requests.post(f"{address}/v1/completions", json=wanted, timeout=SECONDS)
    assert error_of(answer, 400) == "the prompt was not read in 1 s: send a shorter one"


def test_scores_that_the_time_cuts_are_no_result(slow_model: OnnxModel, slow_reading: None) -> None:
    """Of fewer tokens the sum of log probabilities is higher: the text would look likelier."""
    wanted = {"prompt": [[5] * 40] * 9, "echo": True, "logprobs": 0, "max_tokens": 1}
    with served(with_slots(slow_model, 1), Access()) as address:
        url = f"{address}/v1/completions"
        whole = requests.post(url, json=wanted, timeout=SECONDS)
        stream = requests.post(url, json=wanted | {"stream": True}, timeout=SECONDS)
    said = "the prompts were not all read in 1 s: send fewer at once"
    assert error_of(whole, 429) == said
    last = json.loads(stream.text.strip().split("\n\n")[-1].removeprefix("data: "))["error"]
    assert last == whole.json()["error"] and last["type"] == "rate_limit_error"


def test_an_error_in_the_middle_of_a_stream_is_told_in_the_stream(post, monkeypatch) -> None:
    async def failing(*_: Any) -> AsyncIterator[tuple[int, Piece]]:
        yield 0, Piece("Hel", 3, 1)
        raise errors[kind]

    monkeypatch.setattr(gptcore.api.routes, "answers", failing)
    errors = {
        "invalid_request_error": UserError("too complex"),
        "server_error": ZeroDivisionError("secret"),
    }
    for kind, words in zip(errors, ("too complex", "internal error")):
        lines = post(messages=HELLO, stream=True).text.strip().split("\n\n")
        told = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert told["message"].startswith(words) and told["type"] == kind
        answer = post(messages=HELLO)
        whole = error_of(answer, 400 if kind == "invalid_request_error" else 500)
        assert whole == told["message"] and answer.json()["error"]["type"] == kind


UNKNOWN = {"frequency_penalty": 0.0, "user": "me", "tools": [], "logit_bias": {}, "nonsense": 1,
           "metadata": {"a": "b"}, "parallel_tool_calls": False, "tool_choice": "auto",
           "store": False, "service_tier": "auto", "modalities": ["text"],
           "presence_penalty": 0}  # fmt: skip


def test_fields_that_are_not_known_and_null_are_ignored(post) -> None:
    nulls = {"stop": None, "seed": None, "stream": None, "logprobs": None,
             "stream_options": {"include_usage": None}}  # fmt: skip
    assert post(messages=HELLO, max_tokens=2, **UNKNOWN, **nulls).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "messages must be a list"),
        ({"messages": [1]}, "message 0 is not"),
        ({"messages": [{"role": "user", "content": None}]}, "its content must be text"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "unknown role 'robot'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url":
          {"url": "http://127.0.0.1:1/"}}]}]}, "its content must be text"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature='hot'"),
        ({"messages": HELLO, "temperature": -1}, "temperature=-1"),
        ({"messages": HELLO, "top_p": -0.1}, "top_p=-0.1"),
        ({"messages": HELLO, "top_p": False}, "top_p=False"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens=0"),
        ({"messages": HELLO, "max_tokens": 2.5}, "max_tokens=2.5"),
        ({"messages": HELLO, "max_tokens": -(10**999)}, f"max_tokens=-1{'0' * 58}... must be"),
        ({"messages": HELLO, "n": 0}, "n=0 is out of range"),
        ({"messages": HELLO, "n": 128}, "n=128 is out of range: choose 1 to 16"),
        ({"messages": HELLO, "n": 10**999}, f"n=1{'0' * 59}... is out of range: choose 1 to 16"),
        ({"messages": HELLO, "top_logprobs": 3}, "top_logprobs=3 needs logprobs=true"),
        ({"messages": HELLO, "frequency_penalty": 0.5}, "frequency_penalty (0.5): leave it out"),
        ({"messages": HELLO, "logit_bias": {"50256": -100}}, "logit_bias ({'50256': -100})"),
        ({"messages": HELLO, "tool_choice": "required"}, "tools must be a list"),
        ({"messages": HELLO, "modalities": ["text", "audio"]}, "modalities (['text', 'audio'])"),
        ({"messages": HELLO, "stop": [""]}, "stop must be"),
        ({"messages": HELLO, "stop": 5}, "stop must be"),
        ({"messages": HELLO, "stop": False}, "stop must be"),
        ({"messages": HELLO, "stop": ["x"] * 17}, "stop holds 17 texts: give at most 16"),
        ({"messages": HELLO, "stop": "x" * 101}, "stop has 101 characters: give at most 100"),
        ({"messages": HELLO, "logprobs": 3}, "logprobs=3 is not of type bool"),
        ({"messages": HELLO, "logprobs": True, "top_logprobs": 50}, "top_logprobs=50"),
        ({"messages": HELLO, "stream": "yes"}, "stream='yes'"),
        ({"messages": HELLO, "stream_options": [1]}, "stream_options"),
        ({"messages": HELLO, "seed": 1.5}, "seed=1.5"),
        ({"messages": HELLO, "response_format": "json"}, "response_format must be an object"),
        ({"messages": HELLO, "response_format": {"type": "xml"}}, "response_format.type 'xml'"),
        ({"messages": HELLO, "response_format": {"type": "json_schema"}}, "json_schema needs a"),
        ({"messages": HELLO, "response_format": {"type": "json_schema", "json_schema":
          {"schema": None}}}, "json_schema needs a"),
        ({"messages": HELLO, "response_format": {"type": "json_schema", "json_schema":
          {"schema": {"items": {"not": {}}}}}}, 'schema/items: not supported: ["not"]'),
        ({"messages": [{"role": "user", "content": "x" * 100_000}]}, "is too long"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_wrong_chat_is_refused_with_the_fields_name(post, body: dict, words: str) -> None:
    assert words in error_of(post(**body), 400)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "prompt must be"),
        ({"prompt": []}, "prompt must be"),
        ({"prompt": [[]]}, "prompt must be"),
        ({"prompt": [-1]}, "-1 is no token id"),
        ({"prompt": [10**9]}, "1000000000 is no token id"),
        ({"prompt": [True, 1]}, "True is no token id"),
        ({"prompt": [1, "x" * 999]}, f"'{'x' * 59}... is no token id"),
        ({"prompt": "x" * 10**6}, "shorten it"),
        ({"prompt": [5] * 5000}, "the prompt has 5000 tokens"),
        ({"prompt": ["a"] * 500}, "prompt holds 500 prompts"),
        ({"prompt": ["a"] * 10, "n": 10}, "are more than 16 replies"),
        ({"prompt": "a", "echo": 1}, "echo=1"),
        ({"prompt": "a", "logprobs": 99}, "logprobs=99"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens=0"),
        ({"prompt": "a", "response_format": {"type": "json_object"}}, "bind no completion"),
        ({"prompt": "a", "tool_choice": "required", "tools": TOOLS}, "bind no completion"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_completion_is_refused(post, body: dict, words: str) -> None:
    assert words in error_of(post("completions", **body), 400)


def test_an_answer_with_too_many_probabilities_is_refused(post, monkeypatch) -> None:
    monkeypatch.setattr("gptcore.api.bodies.MOST_TOLD", 1000)
    asked = {"messages": HELLO, "n": 2, "max_tokens": 50, "logprobs": True}
    said = error_of(post(**asked, top_logprobs=20), 400)
    assert "could hold 2,100 probabilities, but at most 1,000 are allowed: lower n, " in said
    assert post(**asked, top_logprobs=1).ok
    scored = {"prompt": [[5] * 60, [8] * 40], "echo": True, "max_tokens": 0}
    assert "2,100 probabilities" in error_of(post("completions", **scored, logprobs=20), 400)
    assert post("completions", **scored, logprobs=1).ok


def test_models_health_and_metrics_are_told(url: str, post, nano: OnnxModel) -> None:
    def get(path: str) -> requests.Response:
        return requests.get(url + path, timeout=SECONDS)

    (model,) = get("/v1/models").json()["data"]
    assert model["id"] == nano.bundle.name and model["max_model_len"] == nano.config.block_size
    assert get(f"/v1/models/{model['id']}").json() == model
    assert post(model=model["id"], messages=HELLO, max_tokens=1).status_code == 200
    assert "is not here" in error_of(post(model="gpt-9", messages=HELLO), 404)
    assert "is not here" in error_of(get("/v1/models/gpt-9"), 404)
    assert get(f"/v1/models/{model['id']}@int8").json()["max_model_len"] == model["max_model_len"]
    assert "no /v1/nothing: it has /v1/chat/completions" in error_of(get("/v1/nothing"), 404)
    assert error_of(get("/v1/chat/completions"), 405)
    assert get("/health").json()["status"] == get("/ready").json()["status"] == "ok"
    before, n = metrics(url), 3
    post(messages=HELLO, max_tokens=n, temperature=0)
    after = metrics(url)
    assert after["gptcore_replies_total"] == before["gptcore_replies_total"] + 1
    assert after["gptcore_reply_tokens_total"] == before["gptcore_reply_tokens_total"] + n
    assert after["gptcore_replies_running"] == after["gptcore_replies_waiting"] == 0


def metrics(url: str) -> dict[str, float]:
    lines = requests.get(f"{url}/metrics", timeout=SECONDS).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line[0] != "#")
    return {name.partition("{")[0]: float(value) for name, value in pairs}


def test_a_conversation_with_a_call_of_a_function_is_read_and_in_the_document(post) -> None:
    called = {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    body = {
        "messages": [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "content": "7", "tool_call_id": "c"},
        ],
        "stop": None,
        "max_tokens": 1,
    }
    assert post(**body).ok
    for empty in (None, "", []):  # as clients send it back
        message = {"role": "assistant", "content": empty, "tool_calls": [called]}
        assert read_message("message 0", message, {})["content"] == '{"a": 1}'
    as_object = {"function": {"name": "f", "arguments": {"a": 1}}}  # as Ollama's clients have it
    message = {"role": "assistant", "content": None, "tool_calls": [as_object]}
    assert read_message("message 0", message, {})["content"] == '{"a": 1}'
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    parts = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    for message in (refused, parts):
        assert read_message("message 0", message, {})["content"] == "I cannot."
    assert read_message("message 0", {"role": "assistant"}, {})["content"] == ""
    paths = openapi(["nano"])["paths"]
    content = paths["/v1/chat/completions"]["post"]["requestBody"]["content"]
    document = jsonschema.Draft202012Validator(content["application/json"]["schema"])
    assert document.is_valid(body) and document.is_valid({"messages": [*HELLO, refused, *HELLO]})
    for message in ({"role": "user", "content": None}, {"role": "cat", "content": "Meow"}):
        assert not document.is_valid(body | {"messages": [message]})
        assert post(**body | {"messages": [message]}).status_code == 400


def test_every_refusal_is_in_the_document() -> None:
    source = "".join((ROOT / f"gptcore/api/{name}.py").read_text() for name in ("access", "routes"))
    given = {*re.findall(r"(?:Refused|refusal)\(\s*([45]\d\d)", source)}
    assert {"403", "421", "503"} <= given and given <= {*REFUSALS, "405", "500"}


def test_a_token_that_is_written_like_bytes_is_a_text() -> None:
    singles = {bytes([byte]): byte for byte in range(256)}
    tokenizer = Tokenizer(singles | {b"\\x": 256})
    assert token_name(tokenizer, 256) == "\\x" and token_name(tokenizer, 0xC3) == "bytes:\\xc3"
    assert token_name(tokenizer, tokenizer.special["<|end|>"]) == "<|end|>"
