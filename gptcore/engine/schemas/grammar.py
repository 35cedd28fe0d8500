"""Replies that are JSON of a schema: which tokens may come next, by llguidance.

>>> grammar = json_grammar({"type": "boolean"}, tokenizer).begin(())           # doctest: +SKIP
>>> sample(grammar.restrict(logits), sampling, draw)                          # doctest: +SKIP
1176

The JSON is written as json.dumps writes it, on one line, so that a small model can waste no tokens
on white space; keys come in the order of the schema. The grammar restricts what is chosen, and not
the probabilities that are reported: these are the model's own.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gptcore.checks import Busy, UserError, shorten
from gptcore.engine.schemas.narrow import narrowed
from gptcore.engine.schemas.supported import check_schema, where
from gptcore.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

OPTIONS: "JsonCompileOptions" = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
# A schema is compiled recursively, in up to 12 KB for each level of it and of its references, and
# an overflow would end the process. Memory that is not reached is not taken.
STACK_BYTES = 2**26
COMPILING = threading.Lock()  # the size of stacks is the process's; and one schema uses one core
COMPILER = ThreadPoolExecutor(1, "schemas")  # in which schemas from event loops wait for each other
MOST_WAITING, MOST_OF_ONE = 16, 12  # of these, of all and of one asker; more are refused
WAITING: Counter[str] = Counter()  # by who asks
COUNTING = threading.Lock()
SEARCH_SECONDS = 0.2  # for the search for the faulty part of a schema
TOO_COMPLEX = "the schema is too complex at this point of the reply: simplify it"


class Grammar:
    """The state of a text that must be JSON of a schema."""

    def __init__(self, matcher: "LLMatcher"):
        self.matcher = matcher

    def begin(self, ids: Sequence[int]) -> "Grammar":
        """Return the state after `ids`; raises UserError if no JSON of the schema begins so."""
        matcher = self.matcher.deep_copy()
        if matcher.try_consume_tokens(list(ids)) < len(ids):
            raise UserError(
                "the beginning of the reply does not fit the schema, whose JSON is on one line"
            )
        return Grammar(matcher)

    def restrict(self, logits: np.ndarray) -> np.ndarray:
        """Return logits (V,) in which only the tokens that may come next are finite.

        A token that ends the reply is among them if the text is complete. Raises UserError if a
        limit of llguidance's is reached.
        """
        mask = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        if self.matcher.is_error():  # the mask would be that of a complete text
            raise UserError(TOO_COMPLEX)
        allowed = np.unpackbits(mask, count=len(logits), bitorder="little").view(bool)
        return np.where(allowed, logits, np.float32(-np.inf))

    def add(self, token_id: int) -> None:
        """Advance by a token that may come next."""
        self.matcher.consume_token(token_id)


def json_grammar(schema: Any, tokenizer: Tokenizer) -> Grammar:
    """Return the grammar of a JSON schema (draft 2020-12).

    Raises UserError naming the part that is not supported. A large schema takes half a
    second of one core, others a few milliseconds; they are compiled one at a time. An event loop
    awaits `compiled` instead.
    """
    check_schema(schema)
    with COMPILING:
        before = threading.stack_size(STACK_BYTES)
        try:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(compile_schema, schema, tokenizer).result()
        finally:
            threading.stack_size(before)


async def compiled(schema: Any, tokenizer: Tokenizer, asker: str) -> Grammar:
    """Return the grammar of a JSON schema, for an event loop; raises Busy if many wait.

    They wait in a queue of their own: everybody shares the few threads of asyncio.to_thread.
    """
    with COUNTING:
        if WAITING.total() >= MOST_WAITING or WAITING[asker] >= MOST_OF_ONE:
            waiting = min(WAITING.total(), MOST_WAITING)
            raise Busy(f"{waiting} schemas wait already: try again in a few seconds")
        WAITING[asker] += 1

    def give_up(_: object) -> None:
        with COUNTING:
            WAITING.subtract([asker])
            if not WAITING[asker]:
                del WAITING[asker]

    compiling = COMPILER.submit(json_grammar, schema, tokenizer)
    compiling.add_done_callback(give_up)  # one that has begun goes on, though nobody waits
    return await asyncio.wrap_future(compiling)


def compile_schema(schema: dict[str, Any], tokenizer: Tokenizer) -> Grammar:
    matcher = attempt(narrowed(schema), tokenizer)
    if matcher.is_error():  # between 0 and 1e-12, say, no number is left
        matcher = attempt(schema, tokenizer)
    if matcher.is_error():
        ended = time.monotonic() + SEARCH_SECONDS
        path, part = where(schema, lambda part: attempt(part, tokenizer).is_error(), ended)
        raise UserError(f"schema{path}: {reason(attempt(part, tokenizer).get_error())}")
    return Grammar(matcher)


def attempt(schema: dict[str, Any], tokenizer: Tokenizer) -> "LLMatcher":
    """Return a matcher, whose `is_error` says whether it is usable."""
    from llguidance import LLMatcher, LLParserLimits

    own = {key: value for key, value in schema.items() if key != "x-guidance"}  # options
    text = LLMatcher.grammar_from_json_schema(json.dumps(own), overrides=OPTIONS)
    # They bound a mask to some 50 ms: then the schema is refused, or the reply fails.
    limits = LLParserLimits(
        initial_lexer_fuel=300_000,
        step_lexer_fuel=100_000,
        step_max_items=10_000,
        max_lexer_states=50_000,
        verbose_errors=False,
    )
    matcher = LLMatcher(guide(tokenizer), text, log_level=0, limits=limits)
    matcher.compute_bitmask()  # some errors are found by the first token
    return matcher


def reason(error: str) -> str:
    """Return in one line why a schema cannot be used, from llguidance's error."""
    error = error.partition("\n<")[0]  # a trace may follow
    if error.startswith(("panic", "lexer error", "initial lexer", "Parser Error", "parser error")):
        return "it is too complex: simplify it"
    if error.startswith("NoExtension"):
        return "no JSON fits it"
    if error.startswith("oneOf"):
        return "oneOf is supported only if no value fits two of its schemas: use anyOf"
    error = error.replace("Unimplemented keys:", "not supported:")
    return shorten(" ".join(error.split()), 200)


@lru_cache(maxsize=4)  # a fifth of a second for 49,000 tokens
def guide(tokenizer: Tokenizer) -> "LLTokenizer":
    """Return the tokenizer in llguidance's form, with our ids; any special token ends a text."""
    from llguidance import LLTokenizer, TokenizerWrapper

    ends = [*tokenizer.special.values()]
    return LLTokenizer(TokenizerWrapper(Tokens(tokenizer)), eos_token=ends)


class Tokens:
    """A tokenizer as llguidance asks for it. Ids without bytes are in no text."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer):
        own = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.tokens = [token or b"<|%d|>" % i for i, token in enumerate(own)]
        self.special_token_ids = [i for i, token in enumerate(own) if not token]
        self.eos_token_id = next(iter(tokenizer.special.values()))
        self.encode = tokenizer.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self.encode(text.decode() if isinstance(text, bytes) else text)
