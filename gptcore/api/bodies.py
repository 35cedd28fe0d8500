"""What clients ask for: the JSON of OpenAI's endpoints, as requests for the engine.

>>> asked = read_chat({"messages": [{"role": "user", "content": "Hi"}]}, model)   # doctest: +SKIP
>>> asked.requests[0].max_tokens                                                   # doctest: +SKIP
512

Fields that this server does not know are ignored, as other servers do, but not those of OpenAI that
would change the reply (UNMET). Values of the wrong kind, or out of range, are refused.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from gptcore.api.access import REPLIES
from gptcore.api.functions import (
    Functions,
    Json,
    called,
    demanded,
    reply_schema,
    returned,
    told,
    written,
)
from gptcore.checks import (
    TooLong,
    UserError,
    brief,
    check_choice,
    check_type,
    check_whole,
    check_within,
)
from gptcore.engine.generate import Request, chat_request, check_max_tokens
from gptcore.engine.inputs import check_stops, text_of, usual_sampling
from gptcore.engine.sampling import SETTINGS, Sampling
from gptcore.engine.schemas.grammar import Grammar
from gptcore.model import OnnxModel
from gptcore.text.chat_template import ROLES, Message, text_opening
from gptcore.typed_json import read_as

MOST_TOP = 20  # alternatives to each token
MOST_TOLD = 200_000  # probabilities in one answer: a second of one core, and 15 MB
SEEDS = 2**63  # the sampler takes those below it
LEAST_TOP_P = 0.01  # the sampler's least; 0, as OpenAI allows, means the likeliest token
# What newer clients call the system role, and the role that returns a call's result.
OTHER_ROLES = {"developer": "system", "tool": "user"}
FORMATS = ("text", "json_object", "json_schema")  # of replies
LIMITS = ("max_output_tokens", "max_completion_tokens", "max_tokens")  # names of one limit

# Fields of OpenAI's that this server cannot fulfil, and the values that ask for nothing.
UNMET: dict[str, tuple] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "suffix": ("",),
    "web_search_options": (),
}
# Fields that constrain replies in vLLM, SGLang and llama.cpp; ignoring them would mislead clients.
OTHER_BOUNDS = ("ebnf", "grammar", "guided_choice", "guided_grammar", "guided_json",
                "guided_regex", "json_schema", "regex", "structured_outputs")  # fmt: skip


@dataclass(frozen=True)
class Fields:
    """The fields that endpoints share; null means the default."""

    stream: bool = False
    stream_options: dict[str, bool | None] = field(default_factory=dict)
    n: int = 1  # replies to each prompt
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    temperature: float = Sampling.temperature
    top_k: int = Sampling.top_k
    top_p: float = Sampling.top_p
    min_p: float = Sampling.min_p
    repetition_penalty: float = Sampling.repetition_penalty
    seed: int = Sampling.seed

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options.get("include_usage"))

    def most_tokens(self, default: int) -> int:
        for name in LIMITS:
            if (limit := getattr(self, name)) is not None:
                check_max_tokens(limit, name)
                return limit
        return default

    def sampling(self) -> Sampling:
        values = {setting.name: getattr(self, setting.name) for setting in SETTINGS}
        # OpenAI's seeds may be negative. -1 draws one, as it does elsewhere here.
        seed = self.seed if self.seed == -1 else self.seed % SEEDS
        return Sampling(**values | {"top_p": self.top_p or LEAST_TOP_P, "seed": seed})


@dataclass(frozen=True)
class ParsedCall:
    """One call: its requests for the engine, `n` for each prompt, and the form of the answer."""

    requests: list[Request]
    stream: bool
    include_usage: bool
    n: int
    schema: Any = None  # what the replies must be JSON of, not yet compiled
    functions: Collection[str] = ()  # each reply is a call of one of these, if there are any
    repeated: Json = field(default_factory=dict)  # fields of the call that the answer repeats

    def bound(self, grammar: Grammar) -> "ParsedCall":
        """Return the call with its replies bound to a grammar."""
        return replace(self, requests=[r.bound(grammar) for r in self.requests])


def read_chat(body: Any, model: OnnxModel) -> ParsedCall:
    """Read the body of /v1/chat/completions; raises UserError naming what is wrong."""
    given, stops = read_fields(body, model)
    wants_top = body.get("logprobs")
    if wants_top is not None:
        check_type("logprobs", wants_top, bool)
    n_top = read_count(body, "top_logprobs", MOST_TOP) or 0
    if n_top and not wants_top:
        raise UserError(f"top_logprobs={n_top} needs logprobs=true")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UserError("messages must be a list that is not empty")
    schema = read_format("response_format", body.get("response_format"))
    named = {f"message {i}": message for i, message in enumerate(messages)}
    wanted_top = n_top if wants_top else None
    return chat_call(model, given, stops, named, demanded(body), schema, wanted_top)


def chat_call(
    model: OnnxModel,
    given: Fields,
    stops: tuple[str, ...],
    messages: dict[str, Any],
    functions: Functions,
    schema: Any,
    n_top: int | None,
) -> ParsedCall:
    """Return the call for the reply to a conversation; raises UserError.

    `messages`: as in /v1/chat/completions, by their names in errors. `functions`: if there are any,
    the reply calls one of them, and `stops` and `schema` are ignored: a stop text could cut the
    arguments short. `n_top`: None for no probabilities.
    """
    if not model.bundle.is_chat:
        raise UserError(
            f"{model.bundle.name} was not trained on conversations and only continues text: "
            "use /v1/completions"
        )
    names, is_chosen = called([*messages.values()]), len(functions) > 1
    read = [read_message(where, m, names, is_chosen) for where, m in messages.items()]
    if is_chosen:
        read.append({"role": "system", "content": told(functions)})
    most = given.most_tokens(model.config.block_size)
    request = chat_request(model, one_system(read), given.sampling(), most)
    request = replace(request, stops=() if functions else stops, n_top=n_top)
    schema = reply_schema(functions) if functions else schema
    return replace(parsed([request], given, model), schema=schema, functions=[*functions])


def read_completion(body: Any, model: OnnxModel) -> ParsedCall:
    """Read the body of /v1/completions, whose prompt is a text, ids, or a list of either."""
    given, stops = read_fields(body, model)
    if read_format("response_format", body.get("response_format")) is not None or demanded(body):
        raise UserError(
            "response_format and tool_choice bind no completion: ask at /v1/chat/completions"
        )
    echo = body.get("echo") or False
    check_type("echo", echo, bool)
    n_top = read_count(body, "logprobs", MOST_TOP)
    most = 0 if echo and given.max_tokens == 0 else given.most_tokens(16)
    requests = []
    for ids in read_prompts(body, model):
        # An echo's probabilities are those of the whole prompt: nothing of it may be left out.
        wanted = Request(ids, given.sampling(), most, stops=stops, n_top=n_top, echo=echo)
        wanted.check(model.config.block_size)
        requests.append(wanted)
    return parsed(requests, given, model)


def read_fields(body: Any, model: OnnxModel) -> tuple[Fields, tuple[str, ...]]:
    """Return the fields that both endpoints have, and the texts that end a reply."""
    if not isinstance(body, dict):
        raise UserError("the body must be a JSON object")
    for name, idle in UNMET.items():
        if (value := body.get(name)) is not None and value not in idle:
            raise UserError(f"this server does not support {name} ({brief(value)}): leave it out")
    if name := next((name for name in OTHER_BOUNDS if body.get(name)), ""):
        raise UserError(f"this server has no {name}: only response_format binds a reply, to JSON")
    known = {f.name for f in fields(Fields)}
    values = {key: value for key, value in body.items() if key in known and value is not None}
    usual = asdict(usual_sampling(model.bundle.facts))
    given = read_as(Fields, usual | values, "the body")
    check_within("n", given.n, 1, REPLIES)
    stop = body.get("stop")
    stops = [] if stop in (None, "") else [stop] if isinstance(stop, str) else stop
    return given, check_stops(stops)


def read_format(name: str, wanted: Any) -> Any:
    """Return the JSON schema that replies must fit, not yet checked; None if any text will do.

    `name`: the field's name in errors.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise UserError(f"{name} must be an object")
    check_choice(f"{name}.type", wanted.get("type"), FORMATS)
    if wanted["type"] == "json_object":
        return {"type": "object"}
    if wanted["type"] == "text":
        return None
    given = wanted.get("json_schema")
    if not isinstance(given, dict) or given.get("schema") is None:
        raise UserError(f"{name} of the type json_schema needs a schema")
    return given["schema"]


def read_message(
    where: str, message: Any, names: dict[str, str], is_chosen: bool = False
) -> Message:
    """Return a message whose content is one text; raises UserError.

    `where`: the message's name in errors. `names`: the called functions' names, by call id.
    `is_chosen`: whether the model chooses among functions, and so has written their names.
    """
    if not isinstance(message, dict):
        raise UserError(f'{where} is not of the form {{"role": ..., "content": ...}}')
    content, role, calls = (message.get(key) for key in ("content", "role", "tool_calls"))
    if content is None and role in ("assistant", "tool"):
        content = message.get("refusal") or ""
    said = [text_of(content, where)]
    if isinstance(calls, list):  # which we have written
        said += [written(call, is_chosen, where) for call in calls]
    text = "\n".join(text for text in said if text)
    if role == "tool":
        text = returned(names.get(str(message.get("tool_call_id"))), text)
    role = OTHER_ROLES.get(str(role), role)
    if role not in ROLES:
        known = ", ".join([*ROLES, *OTHER_ROLES])
        raise UserError(f"{where} has the unknown role {brief(role)}: use {known}")
    return {"role": role, "content": text}


def one_system(messages: list[Message]) -> list[Message]:
    """Return messages with all system messages joined into one, first, where models expect it.

    Clients send several, also within a conversation.
    """
    told = [message["content"] for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(told)}, *others] if told else messages


def read_count(body: dict[str, Any], name: str, most: int) -> int | None:
    value = body.get(name)
    if value is not None:
        check_whole(name, value, 0, most)
    return value


def read_prompts(body: dict[str, Any], model: OnnxModel) -> list[list[int]]:
    """Return the ids of each prompt of a completion."""
    prompt = body.get("prompt")
    several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
    prompts: Sequence[Any] = prompt if several else [prompt]  # type: ignore[assignment]
    if len(prompts) > REPLIES:
        raise UserError(f"prompt holds {len(prompts)} prompts: send at most {REPLIES}")
    return [read_prompt(one, model) for one in prompts]


def read_prompt(prompt: Any, model: OnnxModel) -> list[int]:
    tokenizer, block_size = model.tokenizer, model.config.block_size
    if isinstance(prompt, str):
        longest = tokenizer.max_token_bytes * block_size
        if len(prompt) > longest:
            raise TooLong(
                f"the prompt has {len(prompt):,} characters, and the context of {block_size} "
                f"tokens holds at most {longest:,}: shorten it"
            )
        return [*text_opening(tokenizer), *tokenizer.encode(prompt)]
    if not isinstance(prompt, list) or not prompt:
        raise UserError("prompt must be a text, a list of token ids, or a list of either")
    for i in prompt:
        if not tokenizer.is_id(i):
            last = tokenizer.vocab_size - 1
            raise UserError(f"prompt: {brief(i)} is no token id from 0 to {last}")
    return prompt


def parsed(requests: list[Request], given: Fields, model: OnnxModel) -> ParsedCall:
    """Return the call; raises UserError if its answer could be too large."""
    every = repeated(requests, given)
    n = sum(n_told(request, model.config.block_size) for request in every)
    if n > MOST_TOLD:
        raise UserError(
            f"the answer could hold {n:,} probabilities, but at most {MOST_TOLD:,} are allowed: "
            "lower n, max_tokens, or the alternatives to each token"
        )
    return ParsedCall(every, given.stream, given.include_usage, given.n)


def n_told(request: Request, block_size: int) -> int:
    """Return how many probabilities an answer holds at most: of tokens and their alternatives."""
    if request.n_top is None:
        return 0
    n_new = min(request.max_tokens, block_size - len(request.ids))
    return (n_new + request.echo * len(request.ids)) * (1 + request.n_top)


def repeated(requests: list[Request], given: Fields) -> list[Request]:
    """Return each request n times; if it has a seed, each copy gets the next one."""
    if len(requests) * given.n > REPLIES:
        raise UserError(
            f"{len(requests)} prompts with n={given.n} are more than {REPLIES} replies: send fewer"
        )
    if given.n == 1:
        return requests
    first = given.sampling()
    several = [
        first if first.seed < 0 else replace(first, seed=(first.seed + i) % SEEDS)
        for i in range(given.n)
    ]
    return [replace(r, sampling=sampling) for r in requests for sampling in several]
