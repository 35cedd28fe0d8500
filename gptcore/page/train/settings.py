"""What a person may choose for a training on the page.

>>> checked({"name": "My shop", "minutes": 10})
{'name': 'My-shop', 'minutes': 10}
"""

import re
from typing import Any

from gptcore.checks import UserError

MINUTES = (0.1, 24 * 60)  # the fewest and the most
MOST_LETTERS = 40  # of a name
# `start`: the folder of a model; "": a new one; None: the one that suits the texts.
DEFAULTS: dict[str, Any] = {
    "name": "mine",
    "minutes": 10,
    "start": None,
    "adapters": False,  # whether these alone are trained (LoRA)
    "me": "",
    "columns": "",
}
TEXTS = ("name", "start", "me", "columns")


def checked(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the settings among what a person has chosen. Raises UserError."""
    chosen = {key: value for key, value in asked.items() if key in DEFAULTS}
    for key in set(TEXTS) & set(chosen):
        if not isinstance(chosen[key], str) or len(chosen[key]) > 200 or "\0" in chosen[key]:
            raise UserError(f"{key} must be a short text")
    if type(chosen.get("adapters", False)) is not bool:
        raise UserError("adapters must be true or false")
    if "name" in chosen:
        chosen["name"] = folder_name(chosen["name"])
    minutes, (fewest, most) = chosen.get("minutes", 1), MINUTES
    if type(minutes) not in (int, float) or not (fewest <= minutes <= most):
        raise UserError(f"minutes must be a number from {fewest:g} to {most:,}")
    return chosen


def folder_name(given: str) -> str:
    """Return a model's name as that of a folder: "My shop" is My-shop. Raises UserError."""
    name = "-".join(given.split())
    if not name:
        raise UserError("the name of the model is empty: type one, such as mine")
    if unfit := " ".join(dict.fromkeys(re.findall(r"[^\w.-]", name))):
        raise UserError(
            f"the name {name} holds {unfit}: use letters, digits, dots, dashes and underscores"
        )
    if len(name) > MOST_LETTERS:
        raise UserError(f"the name {name} has {len(name)} characters: use at most {MOST_LETTERS}")
    if name.startswith("."):
        raise UserError(f"the name {name} begins with a dot: begin with a letter or a digit")
    return name
