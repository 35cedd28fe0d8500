"""python -m training recipe NAME: a model in stages, each a mix of datasets, as a TOML file says.

    >>> [stage.name for stage in read_recipe("default")]
    ['pretrain', 'finetune', 'polish']

A recipe is training/recipes/NAME.toml, or any file of that form: the model's settings, those of
the training, and for each stage its mix, which is how often each dataset is read. A stage is one
pass over its mix and begins with the weights that the stage before it ended with. Each stage is
a run in OUT/STAGE. The same command again goes on where the last one stopped.
"""

import argparse
import dataclasses
import math
import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcore.checks import UserError, check_choice
from gptcore.config import ModelConfig
from gptcore.tokenizer import Tokenizer
from training.behaviour import without_leaks
from training.config import TrainConfig
from training.corpus import Corpus, Document
from training.datasets.reading import read_dataset
from training.datasets.registry import DATASETS
from training.dialogues.generator import dialogues
from training.language import LanguageModelling
from training.loop import train
from training.run import Run, begun, check_writable
from training.settings import check_same, describe
from training.shards import Shards, prepare
from training.sources import N_DIALOGUES, facts_of
from training.world import World, join

RECIPES = Path(__file__).with_name("recipes")
OWN = "dialogues"  # the project's own, of which there is no end: one pass is N_DIALOGUES of them


@dataclass(frozen=True)
class Stage:
    """One run of a recipe."""

    name: str
    mix: dict[str, float]  # passes over each dataset
    model: ModelConfig
    training: TrainConfig

    def __str__(self) -> str:
        return ", ".join(f"{name} x {passes:g}" for name, passes in self.mix.items())


def read_recipe(name: str) -> list[Stage]:
    """The stages of a shipped recipe or of a file. UserError names what is wrong in it."""
    path = RECIPES / f"{name}.toml"
    path = path if path.exists() else Path(name)
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError:
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
        raise UserError(f"no recipe {name}: name a file, or one of {known}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no TOML: {error}") from None
    check_keys(path, found, {"model", "train", "stages"})
    stages = [read_stage(path, found, values) for values in found.get("stages", [])]
    if not stages or len({stage.name for stage in stages}) < len(stages):
        raise UserError(f"{path}: it needs [[stages]], each with a name of its own")
    return stages


def read_stage(path: Path, recipe: dict[str, Any], values: dict[str, Any]) -> Stage:
    check_keys(path, values, {"name", "mix", "train"})
    name, mix = values.get("name"), values.get("mix", {})
    if not (isinstance(name, str) and name.isidentifier()):
        raise UserError(f"{path}: a stage has name={name!r}: give it a word as a name")
    if not mix:
        raise UserError(f"{path}, {name}: it has no mix: name datasets and how often each is read")
    if "steps" in values.get("train", {}) | recipe.get("train", {}):
        raise UserError(f"{path}, {name}: steps follow from the mix: leave them out")
    for dataset, passes in mix.items():
        check_choice(f"dataset in {path}, {name},", dataset, (OWN, *DATASETS))
        if not (isinstance(passes, int | float) and 0 < passes <= 1000):
            raise UserError(f"{path}, {name}: {dataset}={passes}: passes are above 0, up to 1000")
    training = TrainConfig.from_dict(recipe.get("train", {}) | values.get("train", {}))
    return Stage(name, mix, ModelConfig.from_dict(recipe.get("model", {})), training)


def check_keys(path: Path, values: dict[str, Any], known: set[str]) -> None:
    for key in values:
        if key not in known:
            raise UserError(f"{path}: unknown {key}: there are {', '.join(sorted(known))}")


def mixed(mix: dict[str, float], data_dir: Path | None, seed: int) -> Corpus:
    """The documents of a mix in a random order, the same for the same seed; those that the
    behaviour suite asks are left out. Of 2.5 passes, the third is over a random half."""
    texts = {name: list(without_leaks(read_dataset(name, data_dir))) for name in mix if name != OWN}

    def documents() -> Iterator[Document]:
        rng = random.Random(seed)
        own = without_leaks(dialogues(seed))
        for i in range(math.ceil(max(mix.values()))):
            shares = {name: min(max(passes - i, 0), 1) for name, passes in mix.items()}
            order: list[Document | None] = []
            for name, share in shares.items():
                if name == OWN:
                    order += [None] * round(share * N_DIALOGUES)
                else:
                    order += rng.sample(texts[name], round(share * len(texts[name])))
            rng.shuffle(order)
            yield from (next(own) if document is None else document for document in order)

    return documents


def run_recipe(arguments: list[str]) -> dict[str, Any] | None:
    """The summary of the last stage, or None if it was paused."""
    options = parser().parse_args(arguments)
    stages = read_recipe(options.recipe)
    out = options.out or Path("runs") / Path(options.recipe).stem
    check_writable(out)
    with join(options.timeout) as world:
        before, summary = None, None
        for stage in stages:
            is_there = (out / stage.name / "config.json").exists()
            run = Run.load(out / stage.name) if is_there else None
            if run is None or not run.is_complete:
                print(f"stage {stage.name}: {stage}")
                summary = run_stage(stage, out, options.data_dir, before, world)
                if summary is None:
                    return None
            before = Run.load(out / stage.name)
    return summary or {}


def run_stage(
    stage: Stage, out: Path, data_dir: Path | None, before: Run | None, world: World
) -> dict[str, Any] | None:
    """Start a stage or go on with it."""
    tokenizer = before.tokenizer if before else None
    shards = world.in_turns(lambda: shards_of(stage, out, data_dir, tokenizer))
    model = dataclasses.replace(stage.model, vocab_size=shards.tokenizer.vocab_size)
    rows = LanguageModelling(Run(out, model, stage.training, {}), shards, world).train_rows
    steps = math.ceil(len(rows) / stage.training.batch_size)
    training = dataclasses.replace(stage.training, steps=steps)
    facts = facts_of(shards, str(stage))
    facts |= {"datasets": all_passes(stage, before), "stages": earlier(before)}
    run = Run(out / stage.name, model, training, facts)
    if resume := begun(run.path):
        check_same(Run.load(run.path), model, training)
        run = Run.load(run.path)
    print(describe(run.model, run.train))
    initial = before.best_checkpoint()[0].model if before and not resume else None
    return train(run, LanguageModelling(run, shards, world), initial, resume, world=world)


def all_passes(stage: Stage, before: Run | None) -> dict[str, float]:
    """Over each dataset, those of earlier stages included."""
    passes = Counter(before.data["datasets"] if before else {})
    passes.update(stage.mix)
    return dict(passes)


def earlier(before: Run | None) -> list[dict[str, Any]]:
    """What the stages up to this run took."""
    if before is None:
        return []
    summary = before.summary()
    took = {key: summary[key] for key in ("steps", "tokens", "seconds")}
    took |= {"name": before.path.name, "source": before.data["source"]}
    return [*before.data["stages"], took]


def shards_of(
    stage: Stage, out: Path, data_dir: Path | None, tokenizer: Tokenizer | None
) -> Shards:
    corpus = mixed(stage.mix, data_dir, stage.training.seed)
    return prepare(
        corpus, out / "shards", stage.model.vocab_size, stage.model.block_size, tokenizer
    )


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training recipe",
        description="Train a model in the stages that a recipe describes, or go on with it.",
    )
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    result.add_argument("recipe", help=f"{known}, or a TOML file")
    result.add_argument("--out", type=Path, help="a folder for the stages' runs (runs/NAME)")
    result.add_argument(
        "--data-dir", type=Path, help="where datasets are; see python -m training datasets"
    )
    result.add_argument("--timeout", type=float, default=300.0, help="see python -m training")
    return result
