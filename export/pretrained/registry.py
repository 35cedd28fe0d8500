"""The models that are known by name: python -m export fetch NAME.

>>> find("smollm2-135m").repo
'HuggingFaceTB/SmolLM2-135M-Instruct'
>>> find("Somebody/Llama-tiny").repo
'Somebody/Llama-tiny'

`tried` is true of the models whose real weights went the whole road here; the others were tried as
small models of the same shape with random weights.
"""

from dataclasses import dataclass

from gptcore.checks import check_choice
from gptcore.system.wording import table


@dataclass(frozen=True)
class Model:
    """A model on the Hub: where it is, and what a person wants to know before fetching it."""

    repo: str  # OWNER/NAME
    parameters: str = ""
    licence: str = ""  # SPDX identifier, if there is one
    gigabytes: float = 0.0  # to download
    family: str = ""  # model_type of its config.json
    good_at: str = ""
    tried: bool = False


APACHE = "Apache-2.0"
MODELS = {
    "smollm2-135m": Model(
        *("HuggingFaceTB/SmolLM2-135M-Instruct", "135M", APACHE, 0.27, "llama"),
        "small talk, rewriting; the fastest, and a good start for fine-tuning",
        tried=True,
    ),
    "smollm2-360m": Model(
        *("HuggingFaceTB/SmolLM2-360M-Instruct", "362M", APACHE, 0.72, "llama"),
        "small talk, rewriting, short summaries",
    ),
    "smollm2-1.7b": Model(
        *("HuggingFaceTB/SmolLM2-1.7B-Instruct", "1.7B", APACHE, 3.42, "llama"),
        "general questions, summaries, rewriting; English",
    ),
    "qwen2.5-0.5b": Model(
        *("Qwen/Qwen2.5-0.5B-Instruct", "494M", APACHE, 0.99, "qwen2"),
        "many languages, short answers, JSON",
    ),
    "qwen2.5-1.5b": Model(
        *("Qwen/Qwen2.5-1.5B-Instruct", "1.5B", APACHE, 3.09, "qwen2"),
        "general questions in many languages, arithmetic, JSON",
    ),
    "qwen2.5-coder-1.5b": Model(
        *("Qwen/Qwen2.5-Coder-1.5B-Instruct", "1.5B", APACHE, 3.09, "qwen2"),
        "writing and explaining programs",
        tried=True,
    ),
    "qwen3-0.6b": Model(
        *("Qwen/Qwen3-0.6B", "596M", APACHE, 1.5, "qwen3"),
        "many languages, thinking aloud before an answer",
    ),
    "qwen3-1.7b": Model(
        *("Qwen/Qwen3-1.7B", "1.7B", APACHE, 4.06, "qwen3"),
        "the same with more knowledge",
    ),
    "llama-3.2-1b": Model(
        *("meta-llama/Llama-3.2-1B-Instruct", "1.2B", "Llama 3.2 Community", 2.47, "llama"),
        "general questions, summaries; gated: accept its licence on the Hub, then `hf auth login`",
    ),
}


def find(name: str) -> Model:
    """Return the model of a known name, or of a repository OWNER/NAME.

    Raises UserError for an unknown name, with the nearest known one.
    """
    if "/" in name:
        return Model(name)
    check_choice("model", name.lower(), MODELS)
    return MODELS[name.lower()]


def listed() -> str:
    """Return the table of all known models."""
    head = ("name", "parameters", "licence", "download", "family", "tried here", "good at")
    rows = [
        (name, m.parameters, m.licence, f"{m.gigabytes:.2f} GB", m.family, tried(m), m.good_at)
        for name, m in MODELS.items()
    ]
    return table([head, *rows])


def tried(model: Model) -> str:
    """Return whether this model's real weights were tried here, or others of its family."""
    return "yes" if model.tried else "its family" if is_tried(model.family) else "no"


def is_tried(family: str) -> bool:
    return any(model.tried for model in MODELS.values() if model.family == family)
