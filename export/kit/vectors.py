"""Test vectors of a model: what a port of the loop to another language must compute.

    >>> vectors = make_vectors(load_bundle("models/nano"))               # doctest: +SKIP
    >>> vectors["texts"][0], vectors["prompts"][0]                        # doctest: +SKIP
    ({'text': ..., 'ids': [...]}, {'messages': [...], 'ids': [...], 'logits': [...], ...})

They come from our own engine, on the portable graph in fp32, and hold only what rounding cannot
change: replies end before two tokens that are nearly equally likely, and random numbers are not
near to where another token begins.
"""

from itertools import islice
from typing import Any

import numpy as np

from export.kit.hard_texts import hard_texts
from export.verify.report import logits_limit
from export.verify.sampling import choices, choose, is_clear
from gptcore.bundle import ONNX, Bundle
from gptcore.checks import UserError
from gptcore.engine.onnx_session import OnnxSession, open_inference
from gptcore.text.chat_template import Message, messages_of, render, text_opening
from gptcore.text.tokenizer import Tokenizer
from training.machine.progress import progress

N_TEXTS, N_DRAWS = 200, 50
N_GREEDY, N_LOGITS = 32, 10
LOGITS_LIMIT = 1e-3  # how far a port's logits may be from these, if not as far as the graph's
CLEAR = 10  # times that: the two likeliest tokens may change places if they are nearer

# What users and replies say in turn. In some a user writes the names of special tokens.
CONVERSATIONS = [
    ("Hello!",),
    ("Tell me a story about a cat.",),
    ("What can you do?",),
    ("hi",),
    ("My name is Ada.", "Hello, Ada! What can I do for you?", "What is my name?"),
    ("What is 12 + 30?", "42.", "And 12 - 30?"),
    ("Count to five.", "1, 2, 3, 4, 5.", "Thank you!", "You are welcome.", "Goodbye!"),
    ("Hi! <|end|><|assistant|> What can you do?",),
    ("<|endoftext|>",),
    ("\x85  white space before, and after  \x1f",),
    ("A line,\nanother line,\n\nand a last one.",),
    ("Grüße aus Köln! Ça va?",),
    ("日本語を話せますか。",),
    ("Привет! Как дела?",),
    ("🦜👩‍👩‍👧 what is that?",),
    ("print('hello')  # what does it do?",),
    ("WHY ARE YOU SHOUTING?!",),
    ("1234567890 3.14159 -7",),
    ("I am sad today.",),
    ("the the the the the the the the",),
]
WITH_SYSTEM = range(0, len(CONVERSATIONS), 3)
SYSTEM = "You are a friendly assistant."


def make_vectors(bundle: Bundle) -> dict[str, Any]:
    """Return texts with their ids, prompts with what follows them, and draws; raises UserError."""
    session = OnnxSession(open_inference(bundle.path / ONNX), bundle.config)
    prompts = [p for p in make_prompts(bundle) if len(p["ids"]) < bundle.config.block_size]
    if not prompts:
        raise UserError(
            f"{bundle.path} has a context of {bundle.config.block_size} tokens, which no prompt of "
            f"a kit fits: train with a longer context"
        )
    limit = max(LOGITS_LIMIT, logits_limit(bundle.facts.parity))
    first_logits = []
    for prompt in progress(prompts, "prompts"):
        logits = session.prefill(prompt["ids"])
        first_logits.append(logits)
        best = np.argsort(-logits, kind="stable")[:N_LOGITS]
        prompt["logits"] = [[int(i), round(float(logits[i]), 5)] for i in best]
        prompt["greedy"] = greedy(session, logits, bundle, CLEAR * limit)
        prompt["reply"] = said(prompt["greedy"], bundle.tokenizer)
    return {
        "logits_limit": limit,
        "texts": [{"text": t, "ids": bundle.tokenizer.encode(t)} for t in make_texts(bundle)],
        "prompts": prompts,
        "draws": make_draws(first_logits),
    }


def make_texts(bundle: Bundle) -> list[str]:
    """Return texts of hard Unicode; in some there are the names of special tokens."""
    names = [f"a {name} b{name}" for name in bundle.tokenizer.special][: N_TEXTS // 10]
    return [*names, *hard_texts(N_TEXTS - len(names))]


def make_prompts(bundle: Bundle) -> list[dict[str, Any]]:
    """Return conversations as prompts, or for a base model beginnings of texts."""
    tokenizer = bundle.tokenizer
    if not bundle.is_chat:
        opening = text_opening(tokenizer)
        texts = [turns[0] for turns in CONVERSATIONS]
        return [{"text": text, "ids": [*opening, *tokenizer.encode(text)]} for text in texts]
    result: list[dict[str, Any]] = []
    for i, turns in enumerate(CONVERSATIONS):
        system: list[Message] = [{"role": "system", "content": SYSTEM}] if i in WITH_SYSTEM else []
        messages = system + messages_of(turns)
        ids = render(messages, tokenizer, prompt=True)
        result.append({"messages": messages, "ids": ids})
    return result


def greedy(session: OnnxSession, logits: np.ndarray, bundle: Bundle, clear: float) -> list[int]:
    """Return the likeliest tokens after a prompt whose logits (V,) are given.

    The token that ends the reply is the last one, if it comes within N_GREEDY. They end before two
    tokens whose logits are nearer than `clear`.
    """
    ends = set(bundle.tokenizer.special.values())
    room = bundle.config.block_size - int(session.slots.lengths[0])
    ids: list[int] = []
    while len(ids) < min(N_GREEDY, room):
        second, first = np.partition(logits, -2)[-2:]
        if first - second < clear:
            break
        ids.append(int(logits.argmax()))
        if ids[-1] in ends or len(ids) == room:
            break
        logits = session.step(ids[-1])
    return ids


def said(ids: list[int], tokenizer: Tokenizer) -> str:
    """Return the text of a reply, without what ends it."""
    special = set(tokenizer.special.values())
    return tokenizer.decode(i for i in ids if i not in special)


def make_draws(first_logits: list[np.ndarray]) -> list[dict[str, Any]]:
    """Return which token follows a prompt by a random number, after each prompt in turn."""
    ways = choices(np.random.default_rng(0))
    found = (
        {"prompt": i, **choice._asdict(), "id": choose(logits, choice)}
        for choice in ways
        for i, logits in enumerate(first_logits)
        if is_clear(logits, choice)
    )
    return list(islice(found, N_DRAWS))
