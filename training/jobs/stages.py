"""The stages of a recipe, and the documents of each stage.

    >>> [stage.name for stage in read_recipe("default")]
    ['pretrain', 'finetune', 'polish', 'finish']

A recipe is training/recipes/NAME.toml or another file of that form. It holds model settings,
training settings, and for each stage a mix: the number of passes over each dataset in an epoch.
"""

import math
import random
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from gptcore.checks import UserError, build, check_choice
from gptcore.config import ModelConfig
from training.data.corpus import Corpus, Document
from training.data.leaks import without_leaks
from training.data.sources import DIALOGUES, N_DIALOGUES, SHARDS, own_dialogues
from training.datasets.reading import read_dataset
from training.datasets.registry import DATASETS
from training.run.config import TrainConfig
from training.run.settings import check_row

RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Stage:
    """One run of a recipe."""

    name: str
    mix: dict[str, float]  # passes over each dataset in an epoch
    model: ModelConfig
    training: TrainConfig
    epochs: int = 1  # over the whole mix

    def __str__(self) -> str:
        mix = ", ".join(f"{name} x {passes:g}" for name, passes in self.mix.items())
        several = f"{self.epochs} epochs of " if self.epochs > 1 else ""
        keep = self.training.keep
        kept = f"; {keep:g} of the weights before it kept" if keep else ""
        return several + mix + kept


def read_recipe(name: str) -> list[Stage]:
    """Read the stages of a shipped recipe or of a file. Raises UserError for an invalid one."""
    path = RECIPES / f"{name}.toml"
    path = path if path.exists() else Path(name)
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
        raise UserError(f"there is no recipe {name}: name a file, or one of {known}")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not a TOML file: {error}") from None
    check_keys(str(path), found, ("model", "train", "stages"))
    values = found.get("stages")
    if not isinstance(values, list) or not values:
        raise UserError(f"{path}: it has no stages: add [[stages]]")
    stages = [read_stage(str(path), found, stage) for stage in values]
    if len({stage.name for stage in stages}) < len(stages):
        raise UserError(f"{path}: two [[stages]] have the same name: give each its own")
    return stages


def read_stage(where: str, recipe: dict[str, Any], values: Any) -> Stage:
    check_keys(f"{where}, stages", values, ("name", "mix", "train", "epochs"))
    name = values.get("name")
    if not (isinstance(name, str) and name.isidentifier()) or name == SHARDS:
        raise UserError(f"{where}: a stage has name={name!r}: give it a word as a name")
    where = f"{where}, {name}"
    mix = check_keys(f"{where}, mix", values.get("mix", {}), (DIALOGUES, *DATASETS))
    if not mix:
        raise UserError(f"{where}: it has no mix: name datasets and how often each is read")
    for dataset, passes in mix.items():
        if not (isinstance(passes, int | float) and 0 < passes <= 1000):
            raise UserError(f"{where}: {dataset}={passes}: give passes above 0, up to 1000")
    epochs = values.get("epochs", 1)
    if type(epochs) is not int or not 1 <= epochs <= 1000:
        raise UserError(f"{where}: epochs={epochs}: give a whole number from 1 to 1000")
    train: dict[str, Any] = {}
    for found in (recipe, values):
        train |= check_keys(f"{where}, train", found.get("train", {}), get_type_hints(TrainConfig))
    if "steps" in train:
        raise UserError(f"{where}: steps follow from the mix: leave them out")
    if "lora" in train:
        raise UserError(f"{where}: lora adapts a trained model, not a recipe's: leave it out")
    shape = check_keys(f"{where}, model", recipe.get("model", {}), get_type_hints(ModelConfig))
    model, training = build(ModelConfig, shape), build(TrainConfig, train)
    check_row(model, training)
    return Stage(name, mix, model, training, epochs)


def check_keys(where: str, values: Any, known: Collection[str]) -> dict[str, Any]:
    """Return the values. Raises UserError unless they are a table with known keys only."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: {values!r} is not a table of names and values")
    for key in values:
        check_choice(f"name in {where}:", key, known)
    return values


def mixed(stage: Stage, data_dir: Path | None) -> Corpus:
    """Return the corpus of a stage's mix, in a random order that is the same each time.

    Each pass over a dataset is spread evenly over an equal part of the epoch, so that it ends on
    the mix that it began with. The last of 2.5 passes reads a random half of a dataset, and every
    epoch reads the same. Documents with the behaviour suite's questions are left out. Each stage
    has its own generated dialogues.
    """
    seed = f"{stage.training.seed} {stage.name}"
    found = {name: read_dataset(name, data_dir) for name in stage.mix if name != DIALOGUES}
    texts = {name: list(without_leaks(documents)) for name, documents in found.items()}
    own = own_dialogues(seed)

    def documents() -> Iterator[Document]:
        rng = random.Random(seed)
        dialogues = own()
        order: list[tuple[float, str, int]] = []  # place in the stage, dataset, document
        for name, passes in stage.mix.items():
            size = N_DIALOGUES if name == DIALOGUES else len(texts[name])
            for i in range(math.ceil(passes)):
                share = min(passes - i, 1)
                which = rng.sample(range(size), round(share * size))
                order += [((i + share * rng.random()) / passes, name, one) for one in which]
        for _, name, one in sorted(order):
            yield next(dialogues) if name == DIALOGUES else texts[name][one]

    return documents
