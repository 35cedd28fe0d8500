"""What the view is told of a model; the static site's view as well as the page's.

>>> view_facts(load_bundle("models/default"))["block_size"]              # doctest: +SKIP
512
"""

from typing import Any

from gptcore.bundle import Bundle
from gptcore.engine.sampling import SETTINGS

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


def view_facts(bundle: Bundle) -> dict[str, Any]:
    """Return a model's facts as JSON values; see view/view.js."""
    return {
        "name": bundle.name,
        "chat": bundle.is_chat,
        "block_size": bundle.config.block_size,
        "settings": settings(bundle),
        "examples": bundle.facts.examples or EXAMPLES,
        "inspect": bundle.inspect is not None,
        "folder": bundle.path.name,
        "config": {name: getattr(bundle.config, name) for name in (*SIZES, "position")},
    }


def settings(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the settings of a reply in the order in which the view shows them."""
    temperature, *others = [
        {
            "name": setting.name,
            "lowest": setting.lowest,
            "highest": setting.highest,
            "slider": setting.slider,
            "step": setting.step,
            "default": setting.default,
        }
        for setting in SETTINGS
    ]
    most = highest_max_tokens(bundle)
    max_tokens = {
        "name": "max_tokens",
        "lowest": 1,
        "highest": most,
        "slider": (1, most),
        "step": 1,
        "default": default_max_tokens(bundle),
    }
    return [temperature, max_tokens, *others]


def default_max_tokens(bundle: Bundle) -> int:
    return min(256, highest_max_tokens(bundle) // 2)


def highest_max_tokens(bundle: Bundle) -> int:
    """Return the upper limit of max_tokens; only a base model may exceed its context."""
    within = bundle.config.block_size - 1
    return within if bundle.is_chat else max(within, LONGEST_TEXT)
