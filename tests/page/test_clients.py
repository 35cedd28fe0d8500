"""Clients that nobody here wrote: OpenAI's package, lm-eval, and llama.cpp's server as a peer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
from conftest import NANO, ROOT

from benchmarks.crowds.servers import free_port, llama, running
from export.gguf.write import write_gguf
from export.runtimes.environments import PYTHON, Peer, install
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling, log_softmax
from gptcore.model import OnnxModel

pytestmark = pytest.mark.peers

EXAMPLES = ROOT / "examples"
OPENAI = Peer("", pip=("openai==3.54.0",))
LM_EVAL = Peer("", pip=("lm-eval[api]==0.4.13", "transformers==5.23.0"))
SCHEMATHESIS = Peer("", pip=("schemathesis==4.32.5",))
STORY = "Tell me a story about a cat."
# What a program of OpenAI's package does: whole, at once with others, and what it is refused.
PROGRAM = """
import asyncio, json, sys
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError, OpenAI

url = sys.argv[1]
options = {"messages": [{"role": "user", "content": sys.argv[2]}], "temperature": 0}
client = OpenAI(base_url=url, api_key="secret", max_retries=0)
options["model"] = client.models.list().data[0].id
found = {"whole": client.chat.completions.create(**options).choices[0].message.content}
with client.chat.completions.create(stream=True, **options) as stream:
    found["stream"] = "".join(part.choices[0].delta.content or "" for part in stream)

response = client.responses.create(
    model=options["model"], input=options["messages"], temperature=0
)
found["response"] = response.output_text
with client.responses.stream(
    model=options["model"], input=options["messages"], temperature=0
) as stream:
    found["response in parts"] = stream.get_final_response().output_text

# The package reads answers without checking them; other programs check them by its types.
type(response).model_validate_json(response.to_json(), strict=True)
for event in client.responses.create(model=options["model"], input="Hi", stream=True):
    type(event).model_validate_json(event.to_json(), strict=True)

async def together():
    async with AsyncOpenAI(base_url=url, api_key="secret") as client:
        calls = (client.chat.completions.create(**options, seed=i) for i in range(8))
        return [reply.choices[0].message.content for reply in await asyncio.gather(*calls)]

found["together"] = asyncio.run(together())
echo = client.completions.create(
    model=options["model"], prompt=[5, 8, 13], echo=True, max_tokens=0, logprobs=1
)
found["echo"] = echo.choices[0].logprobs.token_logprobs
found["refused"] = []
for change in ({"model": "gpt-9"}, {"temperature": -1}):
    try:
        client.chat.completions.create(**options | change)
    except (NotFoundError, BadRequestError) as error:
        found["refused"].append([type(error).__name__, error.body["message"]])
try:
    OpenAI(base_url=url, api_key="wrong").models.list()
except AuthenticationError as error:
    found["refused"].append([type(error).__name__, error.body["message"]])
print(json.dumps(found))
"""

PARSING = """
import sys
from typing import Literal
from openai import LengthFinishReasonError, OpenAI
from pydantic import BaseModel, Field

class Toy(BaseModel):
    name: str = Field(max_length=8)
    colour: Literal["red", "blue"]

class Cat(BaseModel):
    name: str = Field(max_length=8)
    lives: int = Field(ge=1, le=9)
    toys: list[Toy] = Field(min_length=1, max_length=2)

parse = OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0).chat.completions.parse
options = {"messages": [{"role": "user", "content": sys.argv[2]}], "response_format": Cat}
options["model"] = sys.argv[3]
choice = parse(temperature=0, **options).choices[0]
assert isinstance(choice.message.parsed, Cat) and choice.finish_reason == "stop"
try:
    parse(max_tokens=2, **options)
except LengthFinishReasonError:
    print(choice.message.parsed.model_dump_json())
"""

CHOOSING = """
import sys
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel, Field

class Cat(BaseModel):
    "A cat."
    name: str = Field(max_length=8)

class Dog(BaseModel):
    "A dog."
    name: str = Field(max_length=8)
    friend: Cat

chat = OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0).chat.completions
options = {
    "messages": [{"role": "user", "content": sys.argv[2]}],
    "model": sys.argv[3],
    "tools": [pydantic_function_tool(Cat), pydantic_function_tool(Dog)],
    "tool_choice": "required",
    "temperature": 2,
}
for seed in range(8):
    whole = chat.parse(seed=seed, **options).choices[0].message
    with chat.stream(seed=seed, **options) as stream:
        streamed = stream.get_final_completion().choices[0].message
    (one,), (other,) = (message.tool_calls for message in (whole, streamed))
    assert one.function.parsed_arguments == other.function.parsed_arguments
    print(type(one.function.parsed_arguments).__name__)
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """`gptcore serve models/nano`, with a key."""
    port = free_port()
    command = [sys.executable, "-m", "gptcore", "serve", NANO, "--variant", "fp32", "--port", port]
    command += ["--api-key"]
    with running("gptcore", command, port, GPTCORE_API_KEY="secret") as server:
        yield f"{server.url}/v1"


def output(*words: object, **environment: str) -> str:
    """What a program prints, started in the root of the project."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    own |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} | environment
    told = subprocess.run([str(word) for word in words], cwd=ROOT, env=own, capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert told.returncode == 0, told.stderr[-2000:]
    return told.stdout


def our_reply(model: OnnxModel, message: str) -> str:
    messages = [{"role": "user", "content": message}]
    return "".join(piece.text for piece in chat(model, messages, Sampling(temperature=0), 512))


def test_openais_package_reads_replies_streams_crowds_and_refusals(
    url: str, nano: OnnxModel
) -> None:
    python = install("openai", OPENAI) / PYTHON
    found = json.loads(output(python, "-c", PROGRAM, url, STORY))
    reply = our_reply(nano, STORY)
    assert found["whole"] == found["stream"] == reply
    assert found["response"] == found["response in parts"] == reply
    assert found["together"] == [reply] * 8
    log_p = log_softmax(nano.session().slots.read(0, [5, 8, 13], first=0))
    assert np.allclose(found["echo"][1:], [log_p[0, 8], log_p[1, 13]], atol=1e-4)
    names, said = zip(*found["refused"])
    assert names == ("NotFoundError", "BadRequestError", "AuthenticationError")
    assert "gpt-9" in said[0] and "temperature=-1" in said[1] and "key" in said[2]


def test_openais_package_parses_a_reply_into_a_pydantic_model(url: str, nano: OnnxModel) -> None:
    python = install("openai", OPENAI) / PYTHON
    cat = json.loads(output(python, "-c", PARSING, url, STORY, nano.bundle.name))
    assert cat.keys() == {"name", "lives", "toys"} and 1 <= cat["lives"] <= 9
    assert {toy["colour"] for toy in cat["toys"]} <= {"red", "blue"}


def test_openais_package_lets_the_model_choose_a_function(url: str, nano: OnnxModel) -> None:
    python = install("openai", OPENAI) / PYTHON
    chosen = output(python, "-c", CHOOSING, url, STORY, nano.bundle.name).split()
    assert len(chosen) == 8 and {*chosen} == {"Cat", "Dog"}


def test_the_example_prints_our_greedy_reply(nano: OnnxModel) -> None:
    python, port = install("openai", OPENAI) / PYTHON, free_port()
    command = [sys.executable, "-m", "gptcore", "serve", NANO, "--variant", "fp32", "--port", port]
    with running("gptcore", command, port) as server:
        printed = output(python, EXAMPLES / "openai_client.py", STORY, f"{server.url}/v1")
    assert printed == our_reply(nano, STORY) + "\n"


def evaluated(task: str, kind: str, address: str, url: str, name: str, out: Path) -> list[dict]:
    """lm-eval's samples of a task, scored through the API."""
    model = f"model={name},base_url={url}/{address},tokenizer={NANO},max_length=512"
    output(install("lm-eval", LM_EVAL) / PYTHON, "-m", "lm_eval", "--model", kind,
           "--model_args", f"{model},num_concurrent=8", "--include_path", EXAMPLES / "lm_eval",
           "--tasks", task, "--output_path", out, "--log_samples",
           *(["--apply_chat_template"] if "chat" in kind else []),
           OPENAI_API_KEY="secret")  # fmt: skip
    (path,) = out.rglob(f"samples_{task}*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lm_eval_scores_answers_as_the_model_itself_does(
    url: str, nano: OnnxModel, tmp_path: Path
) -> None:
    """It sends ids, and reads the probability of each; all fifty are compared."""
    samples = evaluated(
        "facts", "local-completions", "completions", url, nano.bundle.name, tmp_path
    )
    assert len(samples) == 50
    session, encode, n_right = nano.session(), nano.tokenizer.encode, 0
    for sample in samples:
        question = encode(sample["doc"]["question"])
        direct = []
        for answer, told in zip(("right", "wrong"), sample["filtered_resps"]):
            ids = encode(sample["doc"]["question"] + sample["doc"][answer])
            session.slots.cut(0, 0)
            log_p = log_softmax(session.slots.read(0, ids, first=0))
            at = range(len(question), len(ids))
            direct.append(sum(log_p[i - 1, ids[i]] for i in at))
            assert abs(direct[-1] - float(told[0])) < 1e-3
        assert sample["acc"] == float(direct[0] > direct[1])
        n_right += direct[0] > direct[1]
    assert n_right > 35, "of fifty; half of them by chance"


def test_lm_eval_chats_as_the_model_itself_does(url: str, nano: OnnxModel, tmp_path: Path) -> None:
    samples = evaluated("answers", "local-chat-completions", "chat/completions", url,
                        nano.bundle.name, tmp_path)  # fmt: skip
    assert len(samples) == 50
    for sample in samples:
        messages = [{"role": "user", "content": sample["doc"]["question"]}]
        direct = "".join(p.text for p in chat(nano, messages, Sampling(temperature=0), 24))
        ((reply,),) = sample["resps"]
        assert reply == direct.split("\n")[0]
    assert sum(sample["exact_match"] for sample in samples) > 25


def test_llama_cpps_server_takes_over_with_the_same_greedy_tokens(
    url: str, nano: OnnxModel, tmp_path: Path
) -> None:
    """Where a fleet is needed: the same folder, the same client, another server."""
    write_gguf(NANO, tmp_path / "nano.gguf")
    prompts = [nano.tokenizer.encode(text) for text in ("Once upon a time", STORY, "Hello!")]
    body = {"prompt": prompts, "max_tokens": 40, "temperature": 0, "stop": ["\n\n"]}
    headers = {"Authorization": "Bearer secret"}
    ours = requests.post(f"{url}/completions", json=body, headers=headers, timeout=60).json()
    with llama(tmp_path / "nano.gguf", context=512, n_slots=4) as theirs:
        address = f"{theirs.url}/v1/completions"
        texts = [
            requests.post(address, json=body | {"prompt": ids}, timeout=60).json()
            for ids in prompts
        ]
    assert [choice["text"] for choice in ours["choices"]] == [
        text["choices"][0]["text"] for text in texts
    ]


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The page with its API, without a key."""
    port = free_port()
    with running("page", [sys.executable, "app.py", "--model", NANO, "--port", port], port) as page:
        yield page.url


@pytest.mark.parametrize(
    ("document", "checks"),
    [
        ("/v1/openapi.json", "not_a_server_error,status_code_conformance"),
        ("/gradio_api/openapi.json", "not_a_server_error"),
    ],
)
def test_schemathesis_finds_no_error(page: str, document: str, checks: str, tmp_path: Path) -> None:
    program = (install("schemathesis", SCHEMATHESIS) / PYTHON).with_name("schemathesis")
    words = [program, "run", f"{page}{document}", "--checks", checks]
    words += ["--max-examples", "20", "--request-timeout", "60", "--no-color"]
    told = subprocess.run(
        list(map(str, words)), cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert told.returncode == 0 and " passed" in told.stdout, told.stdout
