"""A small chat model on ONNX Runtime: configuration, tokenizer, sampling, generation, sessions.

    >>> from gptcore import Sampling, chat, load_model
    >>> model = load_model("models/default")                                      # doctest: +SKIP
    >>> messages = [{"role": "user", "content": "Hello!"}]
    >>> for piece in chat(model, messages, Sampling(temperature=0)):              # doctest: +SKIP
    ...     print(piece.text, end="", flush=True)

No module outside `gptcore.nn` imports torch. Each of the names in __all__ is imported when it is
first used, so `import gptcore` loads neither numpy nor ONNX Runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gptcore.engine.generate import chat, complete
    from gptcore.engine.sampling import Sampling
    from gptcore.model import load_model

__all__ = ["Sampling", "chat", "complete", "load_model"]
__version__ = "0.1.0"

HOMES = {
    "Sampling": "gptcore.engine.sampling",
    "chat": "gptcore.engine.generate",
    "complete": "gptcore.engine.generate",
    "load_model": "gptcore.model",
}


def __getattr__(name: str) -> Any:
    """Import one of the names in __all__; Python calls this for a name not yet in the module."""
    if name not in HOMES:
        raise AttributeError(f"module 'gptcore' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
