"""The models that a training on the page may begin with.

>>> starts_in(Path("models"))["nano"]                                  # doctest: +SKIP
{'name': 'gptcore nano', 'adapts': True}
"""

from collections import Counter
from pathlib import Path
from typing import Any

from gptcore.bundle import INDEX, TRAINABLE, find_models, read_facts
from gptcore.families import family


def starts_in(models: Path) -> dict[str, dict[str, Any]]:
    """Return, by the names of their folders, the models' own names, and whether each can be given
    adapters (LoRA)."""
    decoders = find_models(models)[0] if models.is_dir() else []
    found = {path.name: read_facts(path) for path in decoders if is_trainable(path)}
    n = Counter(facts.name for facts in found.values())
    return {
        path: {
            "name": facts.name if n[facts.name] == 1 else f"{facts.name} ({path})",
            "adapts": bool(family(facts.config)),
        }
        for path, facts in found.items()
    }


def is_trainable(folder: Path) -> bool:
    """Return whether a training can go on from the weights in a model folder."""
    has_weights = any((folder / name).is_file() for name in TRAINABLE)
    return has_weights and not (folder / INDEX).is_file()
