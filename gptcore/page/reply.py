"""What the view asks for: a reply as events, each a JSON object of its own.

The first says what the model reads, the others which tokens it has written since the one before:

    {"prompt": [[2, "<|user|>", true], [313, "Hello"], ...], "begun": "", "seed": 7, ...}
    {"tokens": [[48, "Hi", -0.1, [[48, "Hi", -0.1], ...]], ...], "text": "Hi", "finish": null, ...}

A token is its id, the text that it adds, its log probability (None: it was begun by the caller) and
the likeliest tokens in its place; of a special one `true` is the last item. `text` is the new text;
it lags behind the tokens while it could begin a stop text. The first event also has `n_dropped`
messages that did not fit, and a `line` about what the model runs on.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from gptcore.checks import UserError, shorten
from gptcore.engine.generate import Request, chat_request, completion_request
from gptcore.engine.inputs import (
    check_stops,
    to_messages,
    to_settings,
    whole_number,
)
from gptcore.engine.sampling import Likelihood
from gptcore.engine.schemas.grammar import compiled
from gptcore.model import OnnxModel, device_line
from gptcore.models import Models
from gptcore.page.facts import highest_max_tokens, usual_settings
from gptcore.page.streaming import Progress, stream
from gptcore.text.tokenizer import Tokenizer

ALTERNATIVES = 5  # likeliest tokens told for each token
SEEDS = 2**31  # drawn seeds are below it


def reply_endpoint(models: Models, asker: Callable[[], str]) -> Callable:
    """Return the function that answers; it raises UserError. `asker` returns who is asking."""

    async def reply(
        prompt: list[dict[str, Any]] | str,
        settings: dict[str, Any],
        begun: list[int] | str,
        name: str | None,
    ) -> AsyncIterator[str]:
        model = await models.get(models.check(name))
        request, schema = await asyncio.to_thread(read, model, prompt, settings, begun)
        if schema is not None:
            request = request.bound(await compiled(schema, model.tokenizer, asker()))
        teller = ReplyEvents(model.tokenizer, request)
        yield teller.start(device_line(model))
        async for progress in stream(model.engine, request, asker()):
            yield teller.more(progress)

    return reply


def read(model: OnnxModel, prompt: Any, settings: Any, begun: Any) -> tuple[Request, Any]:
    """Return the request for the engine, and the schema that its reply must be JSON of, if any.

    `prompt`: the messages of a conversation, or a text to continue. Raises UserError naming what
    is wrong.
    """
    if not isinstance(settings, dict):
        raise UserError("settings must be an object")
    facts = model.bundle.facts
    values = usual_settings(facts) | settings
    # It may have been chosen for another model, whose context is larger.
    highest = highest_max_tokens(facts)
    values["max_tokens"] = min(whole_number("max_tokens", values["max_tokens"]), highest)
    sampling, most = to_settings(values, highest)
    if sampling.seed < 0:
        sampling = replace(sampling, seed=random.randrange(SEEDS))
    schema = None
    if isinstance(prompt, str):
        request = completion_request(model, prompt, sampling, most)
    else:
        ids = read_begun(model.tokenizer, begun)
        schema = read_schema(values.get("schema", ""))
        request = chat_request(model, to_messages(prompt), sampling, most, ids)
    stops = check_stops(values.get("stop", []))
    return replace(request, stops=stops, n_top=ALTERNATIVES), schema


def read_begun(tokenizer: Tokenizer, begun: Any) -> list[int]:
    """Return the ids of a begun reply; those of special tokens would begin another message."""
    if isinstance(begun, str):
        return tokenizer.encode(begun)
    if not isinstance(begun, list):
        raise UserError("begun must be a list of token ids, or a text")
    special = set(tokenizer.special.values())
    for i in begun:
        if not tokenizer.is_id(i) or i in special:
            raise UserError(f"begun holds {str(i)[:50]}, not an ordinary token of this model")
    return begun


def read_schema(text: Any) -> Any:
    """Return the JSON schema that a person wrote, not yet checked; None: there is none."""
    if not isinstance(text, str):
        raise UserError("schema must be a text")
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise UserError(f"the schema is no JSON: {shorten(str(error))}") from None


class ReplyEvents:
    """Reports a reply as events, each a JSON text."""

    def __init__(self, tokenizer: Tokenizer, request: Request):
        self.tokenizer, self.request = tokenizer, request
        self.decoder = tokenizer.stream()
        self.begun = [self.token(i) for i in request.begun]

    def start(self, line: str) -> str:
        request = self.request
        decoder, special = self.tokenizer.stream(), self.tokenizer.special_names
        prompt = [
            [i, special[i], True] if i in special else [i, decoder.push(i)] for i in request.ids
        ]
        return as_json(
            prompt=prompt,
            begun="".join(text for _, text, _, _ in self.begun),
            tokens=self.begun,
            n_dropped=request.n_dropped,
            seed=request.sampling.seed,
            line=line,
        )

    def more(self, progress: Progress) -> str:
        pieces, last = progress.take(), progress.piece
        assert last
        found = {
            "tokens": [
                self.token(token_id, likelihood)
                for piece in pieces
                for token_id, likelihood in zip(piece.token_ids, piece.likelihoods)
            ],
            "text": "".join(piece.text for piece in pieces),
            "finish": last.finish,
            "n_prompt": last.n_prompt,
            "n_new": last.n_new,
            "first_ms": round(1000 * (progress.first - progress.started)),
            "speed": round(progress.speed, 1),
        }
        return as_json(**found)

    def token(self, token_id: int, likelihood: Likelihood | None = None) -> list[Any]:
        text = self.decoder.push(token_id)
        if likelihood is None:
            return [token_id, text, None, []]
        top = [self.likely(i, round(p, 3)) for i, p in likelihood.top]
        return [token_id, text, round(likelihood.logprob or 0.0, 3), top]

    def likely(self, token_id: int, logprob: float) -> list[Any]:
        """Return a likely token's id, text and log probability; a special one's name, and true."""
        if name := self.tokenizer.special_names.get(token_id):
            return [token_id, name, logprob, True]
        return [token_id, self.tokenizer.decode([token_id]), logprob]


def as_json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
