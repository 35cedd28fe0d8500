"""What the view is told of a model; the static site's view as well as the page's.

>>> view_facts(read_facts(folder), folder)["block_size"]                 # doctest: +SKIP
512
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gptcore.bundle import INSPECT, UNTRAINED
from gptcore.engine.inputs import usual_sampling
from gptcore.engine.sampling import SETTINGS, Setting
from gptcore.facts import ModelFacts
from gptcore.system.files import shown
from gptcore.system.wording import word
from gptcore.text.chat_format import ChatFormat
from gptcore.text.tokenizer import FACTS_NAME
from gptcore.text.tokenizer import read_facts as read_tokenizer_facts

EXAMPLES = (
    "Hello! Who are you?",
    "My name is Ada.",
    "Tell me a story about a cat.",
    "What is the capital of France?",
)
SIZES = (
    "n_layer",
    "n_head",
    "n_kv_head",
    "head_dim",
    "n_embd",
    "n_inner",
    "vocab_size",
    "position",
)
LONGEST_TEXT = 1000  # tokens that a base model generates at most in one call


def view_facts(facts: ModelFacts, folder: Path) -> dict[str, Any]:
    """Return a model's facts as JSON values.

    `block_size`: tokens of its context. `inspect` and `untrained`: whether its folder has these
    graphs. `folder`: its name in a command. `tokenizer`: equal for models whose ids have the same
    words. `usual_system`: the system message of chats that bring none, or "". `config`: SIZES. A
    page adds what page_facts returns, and a site the files of its model (export/ship/web.py).
    """
    form = read_tokenizer_facts(folder / FACTS_NAME).get("chat", ChatFormat())
    return {
        "name": facts.name,
        "chat": facts.chat,
        "block_size": facts.config.block_size,
        "settings": settings(facts),
        "examples": examples_of(facts),
        "inspect": INSPECT in facts.sha256,
        "untrained": UNTRAINED in facts.sha256,
        "folder": word(shown(folder)),
        "tokenizer": facts.sha256.get("tokenizer.json", "")[:16],
        "usual_system": form.usual_system,
        "config": {name: getattr(facts.config, name) for name in SIZES},
    }


def examples_of(facts: ModelFacts) -> tuple[str, ...]:
    """Return questions for a person to try: the model's own, if it brings some.

    A model that learned somebody's own texts alone need not know EXAMPLES, nor their language.
    """
    of_own_texts = facts.training and not facts.training.data.datasets
    return facts.examples or (() if of_own_texts else EXAMPLES)


def settings(facts: ModelFacts) -> list[dict[str, Any]]:
    """Return the settings of a reply in the order in which the view shows them."""
    most = highest_max_tokens(facts)
    usual = usual_settings(facts)
    temperature, *others = SETTINGS
    shown = (temperature, Setting("max_tokens", 1, most, (1, most), 1, ""), *others)
    return [setting._asdict() | {"default": usual[setting.name]} for setting in shown]


def usual_settings(facts: ModelFacts) -> dict[str, Any]:
    """Return the settings of a reply, by name, where nobody has chosen others."""
    return asdict(usual_sampling(facts)) | {"max_tokens": min(256, highest_max_tokens(facts) // 2)}


def highest_max_tokens(facts: ModelFacts) -> int:
    """Return the upper limit of max_tokens; only a base model may exceed its context.

    A chat's reply ends earlier, where the context is full: it holds the prompt, too.
    """
    within = facts.config.block_size
    return within if facts.chat else max(within, LONGEST_TEXT)
